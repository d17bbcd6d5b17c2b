#include "gpu/check.h"

#include "base/error.h"

namespace headroom {

void cuda_failed(cudaError_t e, const char* file, int line) {
  cudaGetLastError();  // clear the error for the next call
  throw Error({e == cudaErrorMemoryAllocation ? Code::out_of_memory : Code::cuda, file, line},
              fmt::format("CUDA: {} ({})", cudaGetErrorString(e), cudaGetErrorName(e)));
}

}  // namespace headroom
