// The parts of a gradient, which micro-batches or ranks made, added in order in FP32.
#pragma once
#include <cstdint>

#include "base/tensor.h"
#include "ops/gradient.h"
#include "ops/op.h"

namespace headroom::gradient_sum {

// sum = first + the tensor `apart` elements behind it + …, as many as `parts`; with accumulate they are added to what is there. first:
// FP32 or 16 bits, sum: FP32, both contiguous and of one count.
void add(const Tensor& first, int parts, std::int64_t apart, const Tensor& sum, Gradient into, Context&);

}  // namespace headroom::gradient_sum
