// The only kernel launch (<<< >>>) in the project.
#pragma once
#include <cstddef>

#include "gpu/check.h"

namespace headroom {

struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;
  int cluster = 1;  // blocks in a thread block cluster; 1: none
};

template <class Args>
void launch(cudaStream_t stream, void (*kernel)(Args), const Grid& g, const Args& a) {
  if (g.shared_bytes > 48 * 1024)  // more needs an attribute
    cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(g.shared_bytes)));
  if (g.cluster == 1) {
    kernel<<<g.blocks, g.threads, g.shared_bytes, stream>>>(a);
    cuda(cudaGetLastError());
  } else {
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {unsigned(g.cluster), 1, 1};
    cudaLaunchConfig_t config{g.blocks, g.threads, g.shared_bytes, stream, &cluster, 1};
    cuda(cudaLaunchKernelEx(&config, kernel, a));
  }
}

}  // namespace headroom
