// The implementations behind fp8.cpp, which has checked the arguments and allocated the scratch.
#pragma once
#include "ops/attention/fp8/fp8.h"

namespace headroom::attention {

void to_fp8_cuda(const Problem&, const ToFp8&, const Tensor& maxima, Context&);  // maxima: u32, of Q's heads, K's, V's

}  // namespace headroom::attention
