// to = from: two contiguous tensors of one type and shape.
#pragma once
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::copy {

void copy(const Tensor& from, const Tensor& to, Context&);

}  // namespace headroom::copy
