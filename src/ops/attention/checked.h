// What the checked doors look at before a variant runs.
#pragma once
#include "ops/attention/attention.h"

namespace headroom::attention {

void check(const Problem&, const Forward&);  // shapes, types and strides of a forward call's tensors

}  // namespace headroom::attention
