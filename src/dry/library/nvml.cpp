// NVML (libnvidia-ml.so.1), answered from the description: how many cards, their names, their memory. Cards are numbered as on the host, whatever
// CUDA_VISIBLE_DEVICES says. A handle is a card's number and one, so that it is not null.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "dry/library/memory.h"
#include "dry/library/others.h"
#include "dry/library/properties.h"
#include "dry/library/world.h"
#include "dry/settings.h"

using namespace headroom::dry;

namespace {

enum Return { success = 0, bad_argument = 2, not_supported_here = 3, too_small = 7 };

int number(const void* handle) { return int(reinterpret_cast<std::uintptr_t>(handle)) - 1; }

int text(char* out, unsigned room, const char* value) {
  std::snprintf(out, room, "%s", value);
  return success;
}

std::uint64_t used_of_card(int c) {  // what this process's device of that number uses is in the sum of all
  for (int d = 0; d < devices(); ++d)
    if (physical(d) == c) return used(d);
  return others_use(c) + card().others_bytes;
}

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct Utilisation {
  unsigned gpu, memory;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used;
};
struct ProcessInfoV2 {  // the third version of the functions has it too
  unsigned pid;
  unsigned long long used;
  unsigned instance, compute_instance;
};
constexpr unsigned no_instance = 0xffffffff;  // the card is not divided

// `count`: how many the caller has room for; how many there are.
template <class Info>
int processes(void* handle, unsigned* count, Info* out) {
  const auto uses = uses_of(number(handle));
  const unsigned room = *count;
  *count = unsigned(uses.size());
  if (uses.size() > room) return too_small;
  if (!uses.empty() && !out) return bad_argument;
  for (const Use& use : uses) {
    *out = {};
    out->pid = unsigned(use.pid);
    out->used = use.bytes;
    if constexpr (requires { out->instance; }) out->instance = out->compute_instance = no_instance;
    ++out;
  }
  return success;
}

}  // namespace

extern "C" {
int nvmlInit_v2() { return success; }
int nvmlInit() { return success; }
int nvmlInitWithFlags(unsigned) { return success; }
int nvmlShutdown() { return success; }
const char* nvmlErrorString(int result) { return result == success ? "Success" : "not answered in a dry run"; }
int nvmlSystemGetDriverVersion(char* out, unsigned room) { return text(out, room, "580.00"); }
int nvmlSystemGetNVMLVersion(char* out, unsigned room) { return text(out, room, "13.580.00"); }
int nvmlSystemGetCudaDriverVersion_v2(int* out) {
  *out = 13020;
  return success;
}
int nvmlSystemGetCudaDriverVersion(int* out) { return nvmlSystemGetCudaDriverVersion_v2(out); }
int nvmlDeviceGetCount_v2(unsigned* out) {
  *out = unsigned(host_cards());
  return success;
}
int nvmlDeviceGetCount(unsigned* out) { return nvmlDeviceGetCount_v2(out); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
  if (int(index) >= host_cards()) return bad_argument;
  *out = reinterpret_cast<void*>(std::uintptr_t(index) + 1);
  return success;
}
int nvmlDeviceGetHandleByIndex(unsigned index, void** out) { return nvmlDeviceGetHandleByIndex_v2(index, out); }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** out) {
  unsigned domain = 0, bus = 0;
  return std::sscanf(id, "%x:%x", &domain, &bus) == 2 && bus ? nvmlDeviceGetHandleByIndex_v2(bus - 1, out) : int(bad_argument);
}
int nvmlDeviceGetHandleByUUID(const char* id, void** out) {
  unsigned index = 0;
  return std::sscanf(id, "GPU-headroom-dry-%u", &index) == 1 ? nvmlDeviceGetHandleByIndex_v2(index, out) : int(bad_argument);
}
int nvmlDeviceGetIndex(void* handle, unsigned* out) {
  *out = unsigned(number(handle));
  return success;
}
int nvmlDeviceGetMinorNumber(void* handle, unsigned* out) { return nvmlDeviceGetIndex(handle, out); }
int nvmlDeviceGetName(void*, char* out, unsigned room) { return text(out, room, card().name.c_str()); }
int nvmlDeviceGetUUID(void* handle, char* out, unsigned room) {
  std::snprintf(out, room, "GPU-headroom-dry-%d", number(handle));
  return success;
}
int nvmlDeviceGetSerial(void*, char* out, unsigned room) { return text(out, room, "0"); }
int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* out) {
  *out = {};
  out->bus = unsigned(number(handle)) + 1;
  std::snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "0000:%02X:00.0", out->bus);
  std::snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
  return success;
}
int nvmlDeviceGetMemoryInfo(void* handle, Memory* out) {
  const std::uint64_t now = used_of_card(number(handle));
  *out = {card().memory_bytes, card().memory_bytes - now, now};
  return success;
}
int nvmlDeviceGetMemoryInfo_v2(void* handle, MemoryV2* out) {
  const std::uint64_t now = used_of_card(number(handle));
  *out = {out->version, card().memory_bytes, 0, card().memory_bytes - now, now};
  return success;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = int(card().sm / 10);
  *minor = int(card().sm % 10);
  return success;
}
int nvmlDeviceGetAttributes_v2(void*, void*) { return not_supported_here; }
int nvmlDeviceGetUtilizationRates(void*, Utilisation* out) {
  *out = {};
  return success;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* out) {
  *out = 40;
  return success;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 100000;
  return success;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, ProcessInfoV2* out) { return processes(handle, count, out); }
int nvmlDeviceGetComputeRunningProcesses_v2(void* handle, unsigned* count, ProcessInfoV2* out) { return processes(handle, count, out); }
int nvmlDeviceGetComputeRunningProcesses(void* handle, unsigned* count, ProcessInfo* out) { return processes(handle, count, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void*, unsigned* count, void*) {
  *count = 0;
  return success;
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(void*, unsigned* count, void*) {
  *count = 0;
  return success;
}
int nvmlDeviceGetGraphicsRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return success;
}
// What tools that watch a card ask beside its memory: a card that is idle.
int nvmlDeviceGetComputeMode(void*, int* out) {
  *out = 0;  // any process may use it
  return success;
}
int nvmlDeviceGetPerformanceState(void*, int* out) {
  *out = 0;  // P0
  return success;
}
int nvmlDeviceGetPowerState(void* handle, int* out) { return nvmlDeviceGetPerformanceState(handle, out); }
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
  *millijoules = 0;
  return success;
}
int nvmlDeviceGetClockInfo(void*, int, unsigned* megahertz) {
  *megahertz = 1000;
  return success;
}
int nvmlDeviceGetMaxClockInfo(void* handle, int kind, unsigned* megahertz) { return nvmlDeviceGetClockInfo(handle, kind, megahertz); }
int nvmlDeviceGetClock(void* handle, int kind, int, unsigned* megahertz) { return nvmlDeviceGetClockInfo(handle, kind, megahertz); }
int nvmlDeviceGetArchitecture(void*, unsigned* out) {
  const auto sm = card().sm;  // nvmlDeviceArchitecture_t
  *out = sm < 75 ? 5 : sm < 80 ? 6 : sm < 89 ? 7 : sm < 90 ? 8 : sm < 100 ? 9 : 10;
  return success;
}
int nvmlDeviceGetP2PStatus(void*, void*, int, int* out) {
  *out = 0;  // they reach each other
  return success;
}
int nvmlDeviceGetNvLinkState(void*, unsigned link, int* active) {
  *active = link < 18;
  return success;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, unsigned* type) {
  constexpr unsigned a_switch = 2;
  *type = a_switch;
  return success;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return not_supported_here; }
int nvmlDeviceGetPersistenceMode(void*, int* out) {
  *out = 1;
  return success;
}
int nvmlDeviceGetMigMode(void*, unsigned*, unsigned*) { return not_supported_here; }
// A tool that finds the name in the library reads "not supported", as of many cards; without the name it ends.
#define HEADROOM_NOT_OF_THIS_CARD(name) \
  int name() { return not_supported_here; }
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetFanSpeed)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetFanSpeed_v2)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetNumFans)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetEnforcedPowerLimit)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetPowerManagementLimit)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetPowerManagementDefaultLimit)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetPowerManagementLimitConstraints)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetPowerManagementMode)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetTemperatureThreshold)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetEncoderUtilization)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetDecoderUtilization)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetPcieThroughput)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetMaxPcieLinkGeneration)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetMaxPcieLinkWidth)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetCurrPcieLinkGeneration)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetCurrPcieLinkWidth)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetBrand)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetVbiosVersion)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetBAR1MemoryInfo)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetNumGpuCores)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetMemoryBusWidth)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetEccMode)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetTotalEccErrors)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetMemoryErrorCounter)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetDisplayMode)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetDisplayActive)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetVirtualizationMode)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetApplicationsClock)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetSupportedMemoryClocks)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetSupportedGraphicsClocks)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetCurrentClocksThrottleReasons)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetCurrentClocksEventReasons)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetSupportedClocksThrottleReasons)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetSamples)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetFieldValues)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetProcessUtilization)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetRetiredPages)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetRemappedRows)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetCpuAffinity)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetMemoryAffinity)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetNumaNodeId)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetTopologyCommonAncestor)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetNvLinkVersion)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetNvLinkCapability)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetMaxMigDeviceCount)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetGpuInstanceId)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceGetComputeInstanceId)
HEADROOM_NOT_OF_THIS_CARD(nvmlDeviceIsMigDeviceHandle)
HEADROOM_NOT_OF_THIS_CARD(nvmlSystemGetProcessName)
#undef HEADROOM_NOT_OF_THIS_CARD
// nvmlGpuFabricInfo_v2_t: the caller's version, then cluster, status, clique, state and health. Zeros say that the card is in no fabric.
int nvmlDeviceGetGpuFabricInfoV(void*, void* out) {
  if (card().sm < 90) return not_supported_here;
  std::memset(static_cast<char*>(out) + sizeof(unsigned), 0, 16 + 4 * sizeof(unsigned));
  return success;
}
}
