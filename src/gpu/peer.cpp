#include "gpu/peer.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "gpu/check.h"

namespace headroom {

namespace {

template <class Call>
Call driver_call(const char* name, unsigned since) {  // from the loaded driver, so that the library does not link against libcuda
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t e = cudaGetDriverEntryPointByVersion(name, &entry, since, cudaEnableDefault, &found);
  check(e == cudaSuccess && entry, Code::cuda, "the CUDA driver offers no {}", name);
  return reinterpret_cast<Call>(entry);
}

CUstreamBatchMemOpParams op_of(const Signal& s) {
  CUstreamBatchMemOpParams op{};
  const auto at = reinterpret_cast<CUdeviceptr>(s.word);
  if (s.what == Signal::What::write) {
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = at;
    op.writeValue.value = s.value;
    op.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // what came before in the stream is seen first
  } else {
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = at;
    op.waitValue.value = s.value;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  }
  return op;
}

}  // namespace

std::string name_of_allocation(const void* data) {
  cudaIpcMemHandle_t handle;
  cuda(cudaIpcGetMemHandle(&handle, const_cast<void*>(data)));
  return {reinterpret_cast<const char*>(&handle), sizeof handle};
}

PeerView::PeerView(const std::string& name) {
  cudaIpcMemHandle_t handle;
  check(name.size() == sizeof handle, Code::cuda, "a name of device memory has {} bytes, not {}", sizeof handle, name.size());
  std::memcpy(&handle, name.data(), sizeof handle);
  void* data = nullptr;
  cuda(cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess));
  data_ = static_cast<char*>(data);
}
PeerView::~PeerView() { cudaIpcCloseMemHandle(data_); }

void put_signals(const std::vector<Signal>& signals, void* stream) {
  using Batch = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);
  static const auto batch = driver_call<Batch>("cuStreamBatchMemOp", 12000);
  constexpr std::size_t most = 256;  // of the driver
  std::vector<CUstreamBatchMemOpParams> ops;
  for (const Signal& s : signals) ops.push_back(op_of(s));
  for (std::size_t at = 0; at < ops.size(); at += most) {
    const CUresult r = batch(cuda_stream(stream), unsigned(std::min(most, ops.size() - at)), ops.data() + at, 0);
    check(r == CUDA_SUCCESS, Code::cuda, "the CUDA driver refused signals between GPUs: CUresult {}", int(r));
  }
}

void copy_by_engine(void* to, const void* from, std::size_t bytes, void* stream) {
  cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_stream(stream)));
}

SeenByGpu::SeenByGpu(void* data, std::size_t bytes) : data_(data) {
  cuda(cudaHostRegister(data, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
  void* seen = nullptr;
  const cudaError_t e = cudaHostGetDevicePointer(&seen, data, 0);
  if (e != cudaSuccess) cudaHostUnregister(data);
  cuda(e);
  device_data_ = static_cast<char*>(seen);
}
SeenByGpu::~SeenByGpu() { cudaHostUnregister(data_); }

}  // namespace headroom
