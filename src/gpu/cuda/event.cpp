#include "gpu/event.h"

#include "gpu/check.h"

namespace headroom {

namespace {
cudaEvent_t raw_event(void* e) { return static_cast<cudaEvent_t>(e); }
}  // namespace

Event::Event() {
  cudaEvent_t e;
  cuda(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  raw_ = e;
}
Event::~Event() {
  if (raw_) cudaEventDestroy(raw_event(raw_));
}
void Event::record(void* stream) const { cuda(cudaEventRecord(raw_event(raw_), cuda_stream(stream))); }
void Event::hold_up(void* stream) const { cuda(cudaStreamWaitEvent(cuda_stream(stream), raw_event(raw_), 0)); }
bool Event::passed() const {
  const cudaError_t e = cudaEventQuery(raw_event(raw_));
  if (e == cudaErrorNotReady) return false;
  cuda(e);
  return true;
}

void Event::wait() const { cuda(cudaEventSynchronize(raw_event(raw_))); }

}  // namespace headroom
