// The implementations behind the public functions, which have checked the arguments and allocated the scratch.
#pragma once
#include "ops/bias/bias.h"
#include "ops/parts.h"

namespace headroom::bias {

void add_cpu(const Tensor& y, const Tensor& bias, Context&);
void backward_cpu(const Tensor& dy, const Tensor& dbias, Gradient, const Parts&, const Tensor& sums, Context&);  // sums: [parts, width]

void add_cuda(const Tensor& y, const Tensor& bias, Context&);
void backward_cuda(const Tensor& dy, const Tensor& dbias, Gradient, const Parts&, const Tensor& sums, Context&);

}  // namespace headroom::bias
