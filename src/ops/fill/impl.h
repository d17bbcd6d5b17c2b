// What stands behind the door: trusts what the door has checked.
#pragma once
#include "ops/fill/fill.h"

namespace headroom::fill {

void constant_cpu(const Tensor&, double value, Context&);
void normal_cpu(const Tensor&, const Random&, double mean, double std, Context&);

void constant_cuda(const Tensor&, double value, Context&);
void normal_cuda(const Tensor&, const Random&, double mean, double std, Context&);

}  // namespace headroom::fill
