// NVML as PyTorch's allocator uses it. It looks all of these names up when the card is full, and fails if one is missing: a program that
// catches out-of-memory would end there.
#include <dlfcn.h>
#include <gtest/gtest.h>

namespace {

TEST(Nvml, EveryNameThatPyTorchLooksUpIsThere) {
  void* const library = dlopen(HEADROOM_BINARY_DIR "/libheadroom_dry.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  for (const char* name :
       {"nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetGpuFabricInfoV"})
    EXPECT_TRUE(dlsym(library, name)) << name;
  const auto processes = reinterpret_cast<int (*)(void*, unsigned*, void*)>(dlsym(library, "nvmlDeviceGetComputeRunningProcesses"));
  ASSERT_TRUE(processes);
  unsigned count = 7;
  EXPECT_EQ(processes(nullptr, &count, nullptr), 0);
  EXPECT_EQ(count, 0u);
}

}  // namespace
