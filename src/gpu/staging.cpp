#include "gpu/staging.h"

#include "base/error.h"
#include "base/text.h"
#include "gpu/check.h"

namespace headroom {

namespace {
cudaEvent_t event_of(void* e) { return static_cast<cudaEvent_t>(e); }
}  // namespace

void read_from_device(void* to, const void* from, std::size_t bytes, void* stream) {
  cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, cuda_stream(stream)));
  cuda(cudaStreamSynchronize(cuda_stream(stream)));
}

void write_to_device(void* to, const void* from, std::size_t bytes, void* stream) {
  cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, cuda_stream(stream)));
  cuda(cudaStreamSynchronize(cuda_stream(stream)));
}

void copy_across(void* to, const void* from, std::size_t bytes, void* stream) {
  cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda_stream(stream)));
}

Pinned::Pinned(std::size_t bytes) {
  const cudaError_t e = cudaHostAlloc(&data_, bytes, cudaHostAllocPortable);
  if (e == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw Error(Code::out_of_memory, fmt::format("out of memory: the driver refused to pin {} of host memory", bytes_exactly(bytes)));
  }
  cuda(e);
}
Pinned::~Pinned() { cudaFreeHost(data_); }

Staging::Staging(std::size_t slot_bytes, int slots) : slot_bytes_(slot_bytes) {
  void* at;
  cuda(cudaMallocHost(&at, slot_bytes * std::size_t(slots)));
  memory_ = static_cast<char*>(at);
  for (int i = 0; i < slots; ++i) {
    cudaEvent_t e;
    cuda(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    events_.push_back(e);
  }
}

Staging::~Staging() {
  for (void* e : events_) cudaEventDestroy(event_of(e));
  cudaFreeHost(memory_);
}

void* Staging::next() {
  at_ = (at_ + 1) % events_.size();
  cuda(cudaEventSynchronize(event_of(events_[at_])));  // an event that was never recorded counts as done
  return memory_ + at_ * slot_bytes_;
}

void Staging::send(void* to, std::size_t offset, std::size_t bytes, void* stream) {
  cuda(cudaMemcpyAsync(to, memory_ + at_ * slot_bytes_ + offset, bytes, cudaMemcpyHostToDevice, cuda_stream(stream)));
}

void Staging::sent(void* stream) { cuda(cudaEventRecord(event_of(events_[at_]), cuda_stream(stream))); }

}  // namespace headroom
