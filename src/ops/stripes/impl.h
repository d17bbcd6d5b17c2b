// The implementations behind the public functions, which have checked the arguments.
#pragma once
#include "ops/stripes/stripes.h"

namespace headroom::stripes {

void pack_cpu(const Tensor& from, const Tensor& to, Context&);
void in_order_cpu(const Stripes&, const Tensor& by_rank, const Tensor& to, Context&);
void add_by_rank_cpu(const Stripes&, const Tensor& first, const Tensor& by_rank, Gradient, Context&);
void add_up_cpu(const Tensor& parts, int count, const Tensor& to, Context&);

void pack_cuda(const Tensor& from, const Tensor& to, Context&);
void in_order_cuda(const Stripes&, const Tensor& by_rank, const Tensor& to, Context&);
void add_by_rank_cuda(const Stripes&, const Tensor& first, const Tensor& by_rank, Gradient, Context&);
void add_up_cuda(const Tensor& parts, int count, const Tensor& to, Context&);

}  // namespace headroom::stripes
