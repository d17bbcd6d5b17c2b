// Calls of the CUDA runtime: a failure becomes the library's one error; a handle gets its type back.
#pragma once
#include <cuda_runtime_api.h>

namespace headroom {

[[noreturn]] void cuda_failed(cudaError_t, const char* file, int line);

inline void cuda(cudaError_t e, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (e != cudaSuccess) [[unlikely]]
    cuda_failed(e, file, line);
}

inline cudaStream_t cuda_stream(void* raw) { return static_cast<cudaStream_t>(raw); }  // the handle as Context and Stream carry it

}  // namespace headroom
