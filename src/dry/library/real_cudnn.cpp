#include "dry/library/real_cudnn.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "dry/library/world.h"

namespace headroom::dry {

namespace {

constexpr int card_description = 38, description_text = 2702, text_type = 24, first_version_without_device = 90800;

void* library() {
  static void* const one = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);  // PyTorch has loaded it
  return one;
}

template <class F>
bool find(F& f, const char* name) {
  f = reinterpret_cast<F>(dlsym(library(), name));
  return f != nullptr;
}

// The fields that cuDNN itself serialises of a device. Its choice of engines does not depend on the clocks, which are an H200's.
std::string description(const Card& c) {
  const bool of_a_server = c.sm == 80 || c.sm == 90 || c.sm == 100 || c.sm == 103;
  const auto field = [](const char* key, std::uint64_t value) { return std::string("\"") + key + "\":" + std::to_string(value) + ","; };
  return "{" + field("deviceVer", c.sm * 10) + field("cudaDeviceId", 0) + field("driverVer", std::uint64_t(cuda_version())) +
         field("totalGlobalMem", c.memory_bytes) + "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64]," +
         field("regsPerBlock", 65536) + field("multiProcessorCount", c.units) + field("warpSize", 32) +
         field("maxSharedMemoryPerBlock", 49152) + field("maxSharedMemoryPerBlockOptin", c.shared_bytes) +
         field("reservedSharedMemoryPerBlock", 1024) + field("maxRegistersPerSM", 65536) +
         field("maxCtasPerSM", of_a_server  ? 32
                               : c.sm == 86 ? 16
                                            : 24) +
         field("maxThreadsPerBlock", 1024) + field("maxThreadsPerSM", of_a_server ? 2048 : 1536) + field("pciDeviceId", 0) +
         field("isTccDriver", 0) + field("supportCoopLaunch", 1) + field("smClockRateKHz", 1980000) + field("memClockRateKHz", 3201000) +
         field("l2CacheSize", c.l2_bytes) + "\"deviceName\":\"" + c.name + "\"}";
}

const RealCudnn* open_cudnn() {
  static RealCudnn c;
  if (cudnn_version() < first_version_without_device) return nullptr;
  if (!find(c.create, "cudnnBackendCreateDescriptor") || !find(c.destroy, "cudnnBackendDestroyDescriptor") ||
      !find(c.set, "cudnnBackendSetAttribute") || !find(c.get, "cudnnBackendGetAttribute") || !find(c.finalize, "cudnnBackendFinalize"))
    return nullptr;
  const std::string text = description(card());
  if (c.create(card_description, &c.card) != 0) return nullptr;
  if (c.set(c.card, description_text, text_type, std::int64_t(text.size()), text.data()) != 0 || c.finalize(c.card) != 0) return nullptr;
  return &c;
}

}  // namespace

const RealCudnn* real_cudnn() {
  static const RealCudnn* const one = open_cudnn();
  return one;
}

int cudnn_version() {
  std::size_t (*version)() = nullptr;
  return library() && find(version, "cudnnGetVersion") ? int(version()) : 0;
}

}  // namespace headroom::dry
