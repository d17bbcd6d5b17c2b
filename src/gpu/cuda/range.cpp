#include "gpu/range.h"

#include <nvtx3/nvToolsExt.h>

namespace headroom {

void push_range(const char* name) { nvtxRangePushA(name); }
void pop_range() { nvtxRangePop(); }

}  // namespace headroom
