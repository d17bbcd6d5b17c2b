// The implementations behind the public functions, which have checked the arguments and allocated the scratch.
#pragma once
#include "ops/parts.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace headroom::rmsnorm {

void forward_cpu(const Forward&, Context&);
void backward_cpu(const Backward&, const Parts&, const Tensor& sums, Context&);  // sums: FP32 [parts, width]

void forward_cuda(const Forward&, Context&);
void backward_cuda(const Backward&, const Parts&, const Tensor& sums, Context&);

}  // namespace headroom::rmsnorm
