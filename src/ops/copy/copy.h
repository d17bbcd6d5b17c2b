// to = from: two contiguous tensors of one shape. FP32, bf16 and fp16 convert into each other, rounded to nearest.
#pragma once
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::copy {

void copy(const Tensor& from, const Tensor& to, Context&);

}  // namespace headroom::copy
