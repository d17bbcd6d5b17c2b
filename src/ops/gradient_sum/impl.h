// The implementations behind the public function, which has checked the arguments.
#pragma once
#include "ops/gradient_sum/gradient_sum.h"

namespace headroom::gradient_sum {

void add_cpu(const Tensor& first, int parts, std::int64_t apart, const Tensor& sum, Gradient into, Context&);
void add_cuda(const Tensor& first, int parts, std::int64_t apart, const Tensor& sum, Gradient into, Context&);

}  // namespace headroom::gradient_sum
