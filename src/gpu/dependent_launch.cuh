// Programmatic dependent launch (CUDA's name): a kernel may start while the one ahead of it on the stream still runs. From sm_90 on.
#pragma once
#include "gpu/launch.cuh"

namespace headroom {

// Device side. Call it before reading or writing anything that an earlier kernel may write or read. After an ordinary launch it returns at once.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Device side. From here on the next kernel of the stream may start, if it was launched as dependent and its blocks find room.
__device__ __forceinline__ void allow_dependent_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <class Args>
void launch_dependent(cudaStream_t stream, void (*kernel)(Args), const Grid& g, const Args& a) {
  if (g.shared_bytes > 48 * 1024)  // more needs an attribute
    cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(g.shared_bytes)));
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {unsigned(g.cluster), 1, 1};
  cudaLaunchConfig_t config{g.blocks, g.threads, g.shared_bytes, stream, attributes, g.cluster > 1 ? 2u : 1u};
  cuda(cudaLaunchKernelEx(&config, kernel, a));
}

}  // namespace headroom
