// The implementations behind the public functions, which have checked the arguments.
#pragma once
#include "ops/rope/rope.h"

namespace headroom::rope {

void fill_cpu(const Tensor& table, double theta, std::int64_t first);
void rotate_cpu(const Tensor& x, const Tensor& table, Turn, const Tensor& positions, Context&);

void fill_cuda(const Tensor& table, double theta, std::int64_t first, Context&);
void rotate_cuda(const Tensor& x, const Tensor& table, Turn, const Tensor& positions, Context&);

}  // namespace headroom::rope
