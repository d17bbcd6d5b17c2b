// NVML as PyTorch's allocator uses it. It looks all of these names up when the card is full, and fails if one is missing: a program that
// catches out-of-memory would end there.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>

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

// pynvml ends a program whose function the library does not have, and goes on where the card does not support it.
TEST(Nvml, ToolsThatWatchACardReadThatItIsIdleOrDoesNotSay) {
  void* const library = dlopen(HEADROOM_BINARY_DIR "/libheadroom_dry.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  constexpr int not_supported = 3;
  const auto call = [&](const char* name) { return reinterpret_cast<int (*)(void*, int, void*)>(dlsym(library, name)); };
  for (const char* name : {"nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetFanSpeed", "nvmlDeviceGetEncoderUtilization",
                           "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetSamples"}) {
    ASSERT_TRUE(call(name)) << name;
    EXPECT_EQ(call(name)(nullptr, 0, nullptr), not_supported) << name;
  }
  unsigned megahertz = 0;
  ASSERT_TRUE(call("nvmlDeviceGetClockInfo"));
  EXPECT_EQ(call("nvmlDeviceGetClockInfo")(nullptr, 1, &megahertz), 0) << "torch.cuda.clock_rate() asks";
  EXPECT_GT(megahertz, 0u);
}

// PyTorch asks an H100 that has expandable segments, and warns where there is no answer.
TEST(Nvml, ACardOfHopperIsInNoFabric) {
  void* const library = dlopen(HEADROOM_BINARY_DIR "/libheadroom_dry.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  const auto fabric = reinterpret_cast<int (*)(void*, void*)>(dlsym(library, "nvmlDeviceGetGpuFabricInfoV"));
  ASSERT_TRUE(fabric);
  std::array<unsigned char, 40> info;  // version, cluster, status, clique, state, health: 36 bytes; what comes after is the caller's
  info.fill(0xee);
  ASSERT_EQ(fabric(nullptr, info.data()), 0);
  for (std::size_t i = 0; i < info.size(); ++i) EXPECT_EQ(info[i], i < 4 || i >= 36 ? 0xee : 0) << i;
}

}  // namespace
