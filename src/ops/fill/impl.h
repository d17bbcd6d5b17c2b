// The implementations behind the public functions, which have checked the arguments.
#pragma once
#include "ops/fill/fill.h"

namespace headroom::fill {

void constant_cpu(const Tensor&, double value, Context&);
void normal_cpu(const Tensor&, const Random&, double mean, double std, std::int64_t first, Context&);

void constant_cuda(const Tensor&, double value, Context&);
void normal_cuda(const Tensor&, const Random&, double mean, double std, std::int64_t first, Context&);

}  // namespace headroom::fill
