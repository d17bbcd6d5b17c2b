// The implementations behind the public functions, which have checked the arguments.
#pragma once
#include "ops/copy/copy.h"

namespace headroom::copy {

void copy_cpu(const Tensor& from, const Tensor& to, Context&);
void copy_cuda(const Tensor& from, const Tensor& to, Context&);
void split_cpu(const Tensor& from, const Tensor& upper, const Tensor& rest, Context&);
void split_cuda(const Tensor& from, const Tensor& upper, const Tensor& rest, Context&);

}  // namespace headroom::copy
