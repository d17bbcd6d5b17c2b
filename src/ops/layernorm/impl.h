// The implementations behind the public functions, which have checked the arguments and allocated the scratch.
#pragma once
#include "ops/layernorm/layernorm.h"
#include "ops/parts.h"

namespace headroom::layernorm {

void forward_cpu(const Forward&, Context&);
void backward_cpu(const Backward&, const Parts&, const Tensor& sums, Context&);  // sums: FP32 [parts, 2 · width]

void forward_cuda(const Forward&, Context&);
void backward_cuda(const Backward&, const Parts&, const Tensor& sums, Context&);

}  // namespace headroom::layernorm
