// Initial values: element i becomes `value`, or float(mean + std · normal(i)) of a stream of random numbers, with the same bits on
// every device. FP32, contiguous. Used before a step, so not noted in a walk. `first`: the number of the run's first element in a
// larger tensor.
#pragma once
#include "base/random.h"
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::fill {

void constant(const Tensor&, double value, Context&);
void normal(const Tensor&, const Random&, double mean, double std, Context&, std::int64_t first = 0);

}  // namespace headroom::fill
