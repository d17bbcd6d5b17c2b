// What stands behind the door: trusts what the door has checked.
#pragma once
#include "ops/rope/rope.h"

namespace headroom::rope {

void fill_cpu(const Tensor& table, double theta);
void rotate_cpu(const Tensor& x, const Tensor& table, Turn, Context&);

void fill_cuda(const Tensor& table, double theta, Context&);
void rotate_cuda(const Tensor& x, const Tensor& table, Turn, Context&);

}  // namespace headroom::rope
