// The implementations behind the public functions, which have checked the arguments.
#pragma once
#include "ops/cross_entropy/cross_entropy.h"

namespace headroom::cross_entropy {

void run_cpu(const Rows&, Context&);
void cap_cpu(const Tensor& logits, float softcap, Context&);
void add_up_cpu(const Tensor& losses, double scale, bool add, const Tensor& total, const double* over);

void run_cuda(const Rows&, Context&);
void cap_cuda(const Tensor& logits, float softcap, Context&);
void add_up_cuda(const Tensor& losses, double scale, bool add, const Tensor& total, const double* over, Context&);

}  // namespace headroom::cross_entropy
