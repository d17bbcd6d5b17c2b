// A launch whose blocks may wait for each other: no block starts before there is room for all of them (a cooperative launch). Without that
// promise two such kernels on one card could each hold the room that the other's last blocks wait for.
#pragma once
#include "gpu/launch.cuh"

namespace headroom {

template <class Args>
void launch_together(cudaStream_t stream, void (*kernel)(Args), const Grid& g, const Args& a) {
  cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(g.shared_bytes)));
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config{g.blocks, g.threads, g.shared_bytes, stream, &together, 1};
  cuda(cudaLaunchKernelEx(&config, kernel, a));
}

}  // namespace headroom
