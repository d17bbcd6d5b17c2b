// Values to begin with: element i becomes `value`, or float(mean + std · normal(i)) of a stream of random numbers, with the same bits on
// every device. FP32, contiguous. For the moments before a step: not noted in a walk.
#pragma once
#include "base/random.h"
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::fill {

void constant(const Tensor&, double value, Context&);
void normal(const Tensor&, const Random&, double mean, double std, Context&);

}  // namespace headroom::fill
