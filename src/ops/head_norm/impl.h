// The implementations behind the public functions, which have checked the arguments and allocated the scratch.
#pragma once
#include "ops/head_norm/head_norm.h"
#include "ops/parts.h"

namespace headroom::head_norm {

constexpr std::int64_t most_dim = 256;

void forward_cpu(const Forward&, Context&);
void backward_cpu(const Backward&, const Parts&, const Tensor& sums, Context&);  // parts of the positions; sums: [parts, dim]

void forward_cuda(const Forward&, Context&);
void backward_cuda(const Backward&, const Parts&, const Tensor& sums, Context&);

}  // namespace headroom::head_norm
