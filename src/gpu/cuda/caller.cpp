#include "gpu/caller.h"

#include "base/error.h"
#include "gpu/check.h"

namespace headroom {

namespace {

bool reads_all_host_memory(int device) {  // Grace and the like, and kernels with heterogeneous memory management
  int yes = 0;
  return cudaDeviceGetAttribute(&yes, cudaDevAttrPageableMemoryAccess, device) == cudaSuccess && yes;
}

bool asked(const void* data, cudaPointerAttributes& a) {
  if (cudaPointerGetAttributes(&a, data) == cudaSuccess) return true;
  cudaGetLastError();  // the driver cannot tell
  return false;
}

}  // namespace

OnDevice::OnDevice(const Device& d) {
  if (d.kind != DeviceKind::cuda) return;
  int now = -1;
  cuda(cudaGetDevice(&now));
  if (now == d.index) return;
  cuda(cudaSetDevice(d.index));
  before_ = now;
}
OnDevice::~OnDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

void check_reachable(const void* data, const Device& d, const char* name) {
  cudaPointerAttributes a{};
  if (!data || !asked(data, a)) return;
  check(a.type != cudaMemoryTypeUnregistered || reads_all_host_memory(d.index), Code::bad_argument,
        "{} points to host memory, which cuda:{} cannot read: bring device memory (headroom_memory_allocate, cudaMalloc)", name, d.index);
  check(a.type != cudaMemoryTypeDevice || a.device == d.index, Code::bad_argument, "{} is memory of cuda:{}, the context is cuda:{}'s",
        name, a.device, d.index);
}

void check_host_memory(const void* data, const char* name) {
  cudaPointerAttributes a{};
  if (!data || !asked(data, a)) return;
  check(a.type != cudaMemoryTypeDevice, Code::bad_argument, "{} is memory of cuda:{}, the context is the CPU's", name, a.device);
}

}  // namespace headroom
