#include "gpu/stream.h"

#include "gpu/check.h"

namespace headroom {

namespace {
cudaEvent_t event(void* e) { return static_cast<cudaEvent_t>(e); }
void* make_event() {
  cudaEvent_t e;
  cuda(cudaEventCreate(&e));
  return e;
}
}  // namespace

Stream::Stream(int device) {
  cuda(cudaSetDevice(device));
  cudaStream_t s;
  cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  raw_ = s;
}
Stream::~Stream() {
  if (raw_) cudaStreamDestroy(cuda_stream(raw_));
}
void Stream::wait() const { cuda(cudaStreamSynchronize(cuda_stream(raw_))); }

Graph::Graph(void* raw, const std::function<void()>& work) {
  const auto stream = cuda_stream(raw);
  cudaGraph_t graph = nullptr;
  cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    throw;
  }
  cuda(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t e = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  cuda(e);
  raw_ = exec;
}
Graph::~Graph() { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(raw_)); }
void Graph::launch(void* s) const { cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(raw_), cuda_stream(s))); }

Stopwatch::Stopwatch() : start_(make_event()), stop_(make_event()) {}
Stopwatch::~Stopwatch() {
  cudaEventDestroy(event(start_));
  cudaEventDestroy(event(stop_));
}
void Stopwatch::start(const Stream& s) { cuda(cudaEventRecord(event(start_), cuda_stream(s.raw()))); }
void Stopwatch::stop(const Stream& s) { cuda(cudaEventRecord(event(stop_), cuda_stream(s.raw()))); }
float Stopwatch::elapsed_ms() const {
  cuda(cudaEventSynchronize(event(stop_)));
  float ms;
  cuda(cudaEventElapsedTime(&ms, event(start_), event(stop_)));
  return ms;
}

}  // namespace headroom
