// The implementations behind the public functions, which have checked the arguments.
#pragma once
#include "ops/activation/activation.h"

namespace headroom::activation {

inline bool gated(const Tensor& in, const Tensor& act) { return in.shape[1] == 2 * act.shape[1]; }

void forward_cpu(const Forward&, Context&);
void backward_cpu(const Backward&, Context&);

void forward_cuda(const Forward&, Context&);
void backward_cuda(const Backward&, Context&);

}  // namespace headroom::activation
