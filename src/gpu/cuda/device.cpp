#include "gpu/device.h"

#include "base/error.h"
#include "gpu/check.h"

namespace headroom {

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver, or none that is new enough: the same as no device
  return 0;
}

Device cuda_device(int index) {
  const int count = cuda_device_count();
  check(count > 0, Code::unsupported, "cuda:{} cannot be had: this machine has no CUDA device, or no driver for it", index);
  check(index >= 0 && index < count, Code::unsupported, "cuda:{} cannot be had: this machine has cuda:0 to cuda:{}", index, count - 1);
  cudaDeviceProp p;
  cuda(cudaGetDeviceProperties(&p, index));
  Device d;
  d.kind = DeviceKind::cuda;
  d.name = p.name;
  d.index = index;
  d.sm = 10 * p.major + p.minor;
  d.units = p.multiProcessorCount;
  d.memory_bytes = d.total_bytes = p.totalGlobalMem;
  int driver = 0;
  cuda(cudaDriverGetVersion(&driver));
  char bus[32] = "";
  cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, index));
  d.bus = bus;
  d.driver = fmt::format("CUDA {}.{}", driver / 1000, driver % 1000 / 10);
  return d;
}

std::uint64_t free_memory_bytes(const Device& d) {
  int before = 0;
  cuda(cudaGetDevice(&before));
  cuda(cudaSetDevice(d.index));
  std::size_t free = 0, total = 0;
  const cudaError_t e = cudaMemGetInfo(&free, &total);
  cuda(cudaSetDevice(before));
  cuda(e);
  return free;
}

}  // namespace headroom
