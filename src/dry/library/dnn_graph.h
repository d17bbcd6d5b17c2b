// What a graph of cuDNN's operations computes: a convolution, attention, or another operation, by name.
#pragma once
#include "dry/library/dnn_descriptor.h"

namespace headroom::dry::dnn {

Work work_of(const Descriptor* graph);

}  // namespace headroom::dry::dnn
