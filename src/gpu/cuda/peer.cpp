#include "gpu/peer.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "gpu/buffer.h"
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

void driver(CUresult r, const char* what) { check(r == CUDA_SUCCESS, Code::cuda, "the CUDA driver cannot {}: CUresult {}", what, int(r)); }

struct Virtual {  // the driver's calls for memory that is mapped by hand
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemExportToShareableHandle) give;
  decltype(&cuMemImportFromShareableHandle) take;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
};
const Virtual& virtual_memory() {
  static const Virtual calls = [] {
    constexpr unsigned since = 10020;
    Virtual v{};
    const auto find = [](auto& call, const char* name) { call = driver_call<std::decay_t<decltype(call)>>(name, since); };
    find(v.granularity, "cuMemGetAllocationGranularity"), find(v.create, "cuMemCreate"), find(v.release, "cuMemRelease");
    find(v.give, "cuMemExportToShareableHandle"), find(v.take, "cuMemImportFromShareableHandle");
    find(v.reserve, "cuMemAddressReserve"), find(v.free, "cuMemAddressFree");
    find(v.map, "cuMemMap"), find(v.unmap, "cuMemUnmap"), find(v.set_access, "cuMemSetAccess");
    return v;
  }();
  return calls;
}

CUmemAllocationProp on_device(int device) {
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return p;
}

}  // namespace

SharedMemory::SharedMemory(int device, std::size_t bytes) {
  const Virtual& v = virtual_memory();
  const CUmemAllocationProp p = on_device(device);
  std::size_t page = 0;
  driver(v.granularity(&page, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "say how it shares memory");
  bytes_ = (bytes + page - 1) / page * page;
  const CUresult made = v.create(&handle_, bytes_, &p, 0);
  if (made == CUDA_ERROR_OUT_OF_MEMORY) {
    const DeviceMemory m = device_memory();
    throw Error(Code::out_of_memory, fmt::format("out of memory: the driver refused {}, {} of {} are free", bytes_exactly(bytes),
                                                 bytes_in_words(double(m.free_bytes)), bytes_in_words(double(m.total_bytes))));
  }
  driver(made, "make memory that processes share");
  map(device);
}

SharedMemory::SharedMemory(int device, std::size_t bytes, int descriptor) {
  const Virtual& v = virtual_memory();
  const CUmemAllocationProp p = on_device(device);  // all GPUs of a machine have pages of one size
  std::size_t page = 0;
  driver(v.granularity(&page, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "say how it shares memory");
  bytes_ = (bytes + page - 1) / page * page;
  driver(v.take(&handle_, reinterpret_cast<void*>(std::uintptr_t(descriptor)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
         "take another process's memory");
  map(device);
}

void SharedMemory::map(int device) {
  const Virtual& v = virtual_memory();
  const auto undo = [&](CUresult r, const char* what) {
    if (r == CUDA_SUCCESS) return;
    if (mapped_) v.unmap(address_, bytes_);
    if (address_ != 0) v.free(address_, bytes_);
    v.release(handle_);
    driver(r, what);
  };
  undo(v.reserve(&address_, bytes_, 0, 0, 0), "reserve addresses");
  const CUresult r = v.map(address_, bytes_, 0, handle_, 0);
  mapped_ = r == CUDA_SUCCESS;
  undo(r, "map memory");
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  undo(v.set_access(address_, bytes_, &access, 1), "let this GPU see memory");
}

SharedMemory::~SharedMemory() {
  const Virtual& v = virtual_memory();
  cudaDeviceSynchronize();  // as cudaFree: what uses it has ended
  v.unmap(address_, bytes_);
  v.free(address_, bytes_);
  v.release(handle_);
}

int SharedMemory::descriptor() const {
  int fd = -1;
  driver(virtual_memory().give(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "name memory by a descriptor");
  return fd;
}

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
  constexpr std::size_t most = 256;  // the driver's limit
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
