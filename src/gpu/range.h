// NVTX ranges of this thread: the names that Nsight shows around kernels. Almost free when no tool is attached.
#pragma once

namespace headroom {

void push_range(const char* name);
void pop_range();

}  // namespace headroom
