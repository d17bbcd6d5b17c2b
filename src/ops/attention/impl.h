// The doors of every implementation, for the table in choose.cpp. Nobody else includes this.
#pragma once
#include "ops/attention/attention.h"

namespace headroom::attention {

Support plain_supports(const Problem&, const Device&, Pass);
Saved plain_make_saved(const Problem&, Context&);
void plain_forward(const Problem&, const Forward&, Context&);
void plain_backward(const Problem&, const Backward&, Context&);

Support flash_supports(const Problem&, const Device&, Pass);
Saved nothing_saved(const Problem&, Context&);
void flash_forward(const Problem&, const Forward&, Context&);
void flash_backward(const Problem&, const Backward&, Context&);

}  // namespace headroom::attention
