// Random values written into a tensor on a CUDA device. Value i is scale · random.normal(i), rounded to the tensor's type: the bits are
// the host's.
#pragma once
#include "base/random.h"
#include "base/tensor.h"
#include "gpu/stream.h"

namespace headroom {

void fill_normal(const Tensor&, Random, const Stream&, float scale = 1);  // contiguous; fp32, bf16 or fp16

}  // namespace headroom
