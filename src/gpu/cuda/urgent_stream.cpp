#include "gpu/urgent_stream.h"

#include "gpu/check.h"

namespace headroom {

UrgentStream::UrgentStream(int device) {
  cuda(cudaSetDevice(device));
  int least = 0, most = 0;
  cuda(cudaDeviceGetStreamPriorityRange(&least, &most));
  cudaStream_t s;
  cuda(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, most));
  raw_ = s;
}
UrgentStream::~UrgentStream() { cudaStreamDestroy(cuda_stream(raw_)); }

int priority_of(void* stream) {
  int priority = 0;
  cuda(cudaStreamGetPriority(cuda_stream(stream), &priority));
  return priority;
}

}  // namespace headroom
