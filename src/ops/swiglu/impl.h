// The implementations behind the public functions, which have checked the arguments.
#pragma once
#include "ops/swiglu/swiglu.h"

namespace headroom::swiglu {

void forward_cpu(const Forward&, Context&);
void backward_cpu(const Backward&, Context&);

void forward_cuda(const Forward&, Context&);
void backward_cuda(const Backward&, Context&);

}  // namespace headroom::swiglu
