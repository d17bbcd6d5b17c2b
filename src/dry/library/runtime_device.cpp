// The CUDA runtime: devices, properties, versions, errors.
#include <dlfcn.h>

#include <cstdio>
#include <string>
#include <utility>

#include "dry/library/caller.h"
#include "dry/library/exchange.h"
#include "dry/library/last_error.h"
#include "dry/library/memory.h"
#include "dry/library/order.h"
#include "dry/library/properties.h"
#include "dry/library/public.h"
#include "dry/library/python.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;

namespace {

bool there(int device) { return device >= 0 && device < devices(); }

int properties(void* out, PropertiesOf version, int device) {
  if (!there(device)) return failed(invalid_device);
  fill_properties(out, version, device);
  return ok;
}

}  // namespace

namespace headroom::dry {

thread_local int last_error = ok;
int failed(int status) { return last_error = status; }

void* driver_function(const char* name, const void* caller) {  // the newest that there is, as the driver does
  for (const char* version : {"_v3", "_v2", ""})
    if (void* const found = dlsym(RTLD_DEFAULT, (std::string(name) + version).c_str())) return found;
  if (is_nvidias(caller)) return nullptr;
  note(Said::refused, name);
  say("the driver has no function", name);
  return nullptr;
}

}  // namespace headroom::dry

namespace {

int entry_point(const char* name, void** out, int* found, const void* caller) {
  *out = driver_function(name, caller);
  if (found) *found = *out ? 0 : 1;  // cudaDriverEntryPointSymbolNotFound
  return ok;
}

}  // namespace

extern "C" {
int cudaGetDeviceCount(int* count) {
  *count = devices();
  return devices() ? int(ok) : failed(no_device);
}
int cudaGetDevice(int* out) {
  settle();
  *out = device();
  return ok;
}
int cudaSetDevice(int d) {
  if (!there(d)) return failed(invalid_device);
  device() = d;
  return ok;
}
int cudaInitDevice(int d, unsigned, unsigned) { return there(d) ? int(ok) : failed(invalid_device); }
int cudaChooseDevice(int* out, const void*) {
  *out = 0;
  return ok;
}
int cudaDeviceReset() { return ok; }
int cudaGetDeviceFlags(unsigned* flags) {
  *flags = 0;
  return ok;
}
int cudaSetDeviceFlags(unsigned) { return ok; }

int cudaGetDeviceProperties_v2(void* out, int d) { return properties(out, PropertiesOf::cuda_12, d); }
int cudaGetDeviceProperties(void* out, int d) {  // the name without a version is CUDA 13's
  return properties(out, cuda_version() < 13000 ? PropertiesOf::cuda_12 : PropertiesOf::cuda_13, d);
}
int cudaDeviceGetAttribute(int* out, int attribute, int d) {
  if (!there(d)) return failed(invalid_device);
  *out = attribute_of(attribute, d);
  return ok;
}
int cudaDeviceGetPCIBusId(char* out, int room, int d) {
  if (!there(d)) return failed(invalid_device);
  std::snprintf(out, std::size_t(room), "0000:%02X:00.0", 1 + physical(d));
  return ok;
}
int cudaDeviceGetByPCIBusId(int* out, const char* id) {
  unsigned domain = 0, bus = 0;
  if (std::sscanf(id, "%x:%x", &domain, &bus) == 2)
    for (int d = 0; d < devices(); ++d)
      if (int(bus) == 1 + physical(d)) {
        *out = d;
        return ok;
      }
  return failed(invalid_device);
}
int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return ok;
}
int cudaDeviceCanAccessPeer(int* out, int a, int b) {
  *out = a != b;
  return ok;
}
int cudaDeviceEnablePeerAccess(int, unsigned) { return ok; }
int cudaDeviceDisablePeerAccess(int) { return ok; }
int cudaDeviceGetP2PAttribute(int* out, int attribute, int, int) {
  *out = attribute != 3;  // all but arrays
  return ok;
}
int cudaDeviceSetLimit(int, std::size_t) { return ok; }
int cudaDeviceGetLimit(std::size_t* out, int) {
  *out = 1024;
  return ok;
}
int cudaDeviceSetCacheConfig(int) { return ok; }
int cudaDeviceSynchronize() {
  settle();
  meet();
  host_waits_for_device(device());
  order_host_waits_for_device(device());
  return ok;
}

int cudaDriverGetVersion(int* version) {
  *version = 13020;
  return ok;
}
int cudaRuntimeGetVersion(int* version) {
  *version = cuda_version();
  return ok;
}
int cudaGetLastError() { return std::exchange(last_error, int(ok)); }
int cudaPeekAtLastError() { return last_error; }
int cudaProfilerStart() { return ok; }
int cudaProfilerStop() { return ok; }

int cudaGetDriverEntryPointByVersion(const char* name, void** out, unsigned, unsigned long long, int* found) {
  return entry_point(name, out, found, __builtin_return_address(0));
}
int cudaGetDriverEntryPoint(const char* name, void** out, unsigned long long, int* found) {
  return entry_point(name, out, found, __builtin_return_address(0));
}
int cudaGetDriverEntryPoint_ptsz(const char* name, void** out, unsigned long long, int* found) {
  return entry_point(name, out, found, __builtin_return_address(0));
}
}
