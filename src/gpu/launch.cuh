// The only <<< >>> in the project.
#pragma once
#include <cstddef>

#include "gpu/check.h"

namespace headroom {

struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;
};

template <class Args>
void launch(cudaStream_t stream, void (*kernel)(Args), const Grid& g, const Args& a) {
  if (g.shared_bytes > 48 * 1024)  // more than every kernel may have without asking
    cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(g.shared_bytes)));
  kernel<<<g.blocks, g.threads, g.shared_bytes, stream>>>(a);
  cuda(cudaGetLastError());
}

}  // namespace headroom
