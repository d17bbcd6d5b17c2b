// NVTX ranges of this thread: the names that Nsight shows around kernels. Almost free when no tool is attached. For runs on a card: NVTX is in
// libheadroom_cuda.so.
#pragma once

namespace headroom {

void push_range(const char* name);
void pop_range();

}  // namespace headroom
