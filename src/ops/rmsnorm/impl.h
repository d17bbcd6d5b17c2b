// What stands behind the door: trusts what the door has checked, takes the scratch that the door has made.
#pragma once
#include "ops/parts.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace headroom::rmsnorm {

void forward_cpu(const Forward&, Context&);
void backward_cpu(const Backward&, const Parts&, const Tensor& sums, Context&);  // sums: FP32 [parts, width]

void forward_cuda(const Forward&, Context&);
void backward_cuda(const Backward&, const Parts&, const Tensor& sums, Context&);

}  // namespace headroom::rmsnorm
