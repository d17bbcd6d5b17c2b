// A CUDA call's answer, turned into the library's one error.
#pragma once
#include <cuda_runtime_api.h>

namespace headroom {

[[noreturn]] void cuda_failed(cudaError_t, const char* file, int line);

inline void cuda(cudaError_t e, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (e != cudaSuccess) [[unlikely]]
    cuda_failed(e, file, line);
}

}  // namespace headroom
