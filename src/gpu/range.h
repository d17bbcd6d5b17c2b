// NVTX ranges of this thread: the names that Nsight shows around kernels. Cost next to nothing when nobody listens.
#pragma once

namespace headroom {

void push_range(const char* name);
void pop_range();

}  // namespace headroom
