// to = from: two contiguous tensors of one shape; rounded to the nearest where their types differ (FP32, bf16, fp16 then).
#pragma once
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::copy {

void copy(const Tensor& from, const Tensor& to, Context&);

}  // namespace headroom::copy
