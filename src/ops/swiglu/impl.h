// What stands behind the door: trusts what the door has checked.
#pragma once
#include "ops/swiglu/swiglu.h"

namespace headroom::swiglu {

void forward_cpu(const Forward&, Context&);
void backward_cpu(const Backward&, Context&);

void forward_cuda(const Forward&, Context&);
void backward_cuda(const Backward&, Context&);

}  // namespace headroom::swiglu
