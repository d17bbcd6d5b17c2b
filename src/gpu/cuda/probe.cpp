#include "gpu/probe.h"

#include <memory>
#include <vector>

#include "gpu/check.h"

namespace headroom {

Nodes run_and_count(void* raw, const std::function<void()>& work) {
  const auto stream = cuda_stream(raw);
  cudaGraph_t recorded = nullptr;
  cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &recorded);
    if (recorded) cudaGraphDestroy(recorded);
    throw;
  }
  cuda(cudaStreamEndCapture(stream, &recorded));
  const std::unique_ptr<CUgraph_st, decltype(&cudaGraphDestroy)> graph(recorded, cudaGraphDestroy);
  std::size_t n = 0;
  cuda(cudaGraphGetNodes(graph.get(), nullptr, &n));
  std::vector<cudaGraphNode_t> nodes(n);
  cuda(cudaGraphGetNodes(graph.get(), nodes.data(), &n));
  Nodes count;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    if (cudaGraphNodeGetType(node, &type) != cudaSuccess) {  // the runtime has no name for this kind, as for waits on a word in memory
      cudaGetLastError();
      ++count.others;
      continue;
    }
    (type == cudaGraphNodeTypeKernel ? count.kernels : type == cudaGraphNodeTypeMemcpy ? count.copies : count.others) += 1;
  }
  cudaGraphExec_t made = nullptr;
  cuda(cudaGraphInstantiate(&made, graph.get(), 0));
  const std::unique_ptr<CUgraphExec_st, decltype(&cudaGraphExecDestroy)> exec(made, cudaGraphExecDestroy);
  cuda(cudaGraphLaunch(exec.get(), stream));
  cuda(cudaStreamSynchronize(stream));
  return count;
}

bool being_recorded(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda(cudaStreamIsCapturing(cuda_stream(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

void use_cuda_device(int index) { cuda(cudaSetDevice(index)); }

}  // namespace headroom
