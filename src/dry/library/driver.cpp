// libcuda.so.1, as far as Triton, PyTorch's own stub of it and the expandable segments ask for it.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "dry/library/caller.h"
#include "dry/library/images.h"
#include "dry/library/last_error.h"
#include "dry/library/launch.h"
#include "dry/library/memory.h"
#include "dry/library/order.h"
#include "dry/library/properties.h"
#include "dry/library/public.h"
#include "dry/library/python.h"
#include "dry/library/values.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;

namespace {

struct Module {
  std::mutex mutex;
  Codes codes;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

char contexts[64];  // their addresses are the contexts, one a device
void* context_of(int device) { return &contexts[device & 63]; }

// A module's image: an ELF file of machine code, or text for a compiler that is not here.
int load(void** out, const char* image, std::size_t bytes) {
  auto* const module = new Module;
  read_image(image, bytes, module->codes);
  module_loaded();
  *out = module;
  return ok;
}

int find(const char* name, void** out, int* found, const void* caller) {
  *out = driver_function(name, caller);
  if (found) *found = *out ? 0 : 1;
  return *out ? ok : not_found;
}

void* address(unsigned long long p) { return reinterpret_cast<void*>(p); }

}  // namespace

extern "C" {
int cudaMalloc(void**, std::size_t);
int cudaFree(void*);
int cudaMemGetInfo(std::size_t*, std::size_t*);

int cuInit(unsigned) { return devices() ? ok : no_device; }
int cuDriverGetVersion(int* version) {
  *version = 13020;
  return ok;
}
int cuDeviceGetCount(int* count) {
  *count = devices();
  return ok;
}
int cuDeviceGet(int* out, int ordinal) {
  if (ordinal < 0 || ordinal >= devices()) return invalid_device;
  *out = ordinal;
  return ok;
}
int cuDeviceGetName(char* out, int room, int) {
  std::snprintf(out, std::size_t(room), "%s", card().name.c_str());
  return ok;
}
int cuDeviceGetUuid_v2(char* out, int d) {
  std::memset(out, 0, 16);
  std::snprintf(out, 16, "headroom dry %d", physical(d));
  return ok;
}
int cuDeviceGetUuid(char* out, int d) { return cuDeviceGetUuid_v2(out, d); }
int cuDeviceTotalMem_v2(std::size_t* out, int) {
  *out = card().memory_bytes;
  return ok;
}
int cuDeviceComputeCapability(int* major, int* minor, int) {
  *major = int(card().sm / 10);
  *minor = int(card().sm % 10);
  return ok;
}
int cuDeviceGetAttribute(int* out, int attribute, int d) {
  *out = attribute_of(attribute, d);
  return ok;
}
int cuDevicePrimaryCtxRetain(void** out, int d) {
  *out = context_of(d);
  return ok;
}
int cuDevicePrimaryCtxRelease_v2(int) { return ok; }
int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return ok;
}
int cuCtxGetCurrent(void** out) {
  *out = context_of(device());
  return ok;
}
int cuCtxSetCurrent(void* context) {
  const auto d = static_cast<char*>(context) - contexts;
  if (context && d >= 0 && d < devices()) device() = int(d);
  return ok;
}
int cuCtxPushCurrent_v2(void* context) { return cuCtxSetCurrent(context); }
int cuCtxPopCurrent_v2(void** out) { return cuCtxGetCurrent(out); }
int cuCtxGetDevice(int* out) {
  *out = device();
  return ok;
}
int cuCtxGetApiVersion(void*, unsigned* out) {
  *out = 13020;
  return ok;
}
int cuCtxSynchronize() {
  host_waits_for_device(device());
  order_host_waits_for_device(device());
  return ok;
}
int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return ok;
}
int cuGetErrorString(int, const char** out) {
  *out = "an error of the driver that is not there";
  return ok;
}
int cuGetErrorName(int, const char** out) {
  *out = "CUDA_ERROR";
  return ok;
}
int cuGetProcAddress_v2(const char* name, void** out, int, unsigned long long, int* found) {
  return find(name, out, found, __builtin_return_address(0));
}
int cuGetProcAddress(const char* name, void** out, int, unsigned long long) {
  return find(name, out, nullptr, __builtin_return_address(0));
}

// The driver's private tables: only a runtime that is linked statically asks for them, and it would go past everything here. cuDNN and cuBLAS have
// one too, and are answered at their doors. NVRTC, which compiles kernels for cuDNN, takes nothing of a card. PyTorch asks the shared runtime for the
// words of an error, which begins it; every call of it that takes something is answered here.
int cuGetExportTable(const void** table, const void*) {
  const std::string_view file = file_of(__builtin_return_address(0)), path = file.empty() ? "a library" : file, name = name_of_file(path);
  if (!name.starts_with("libcudnn") && !name.starts_with("libcublas") && !name.starts_with("libnvrtc") &&
      !name.starts_with("libcudart.so")) {
    note(Said::static_runtime, path);
    say("a CUDA runtime is linked statically into", std::string(path).c_str());
  }
  *table = nullptr;
  return not_found;
}

int cuModuleLoadData(void** out, const void* image) { return load(out, static_cast<const char*>(image), 0); }
int cuModuleLoadDataEx(void** out, const void* image, unsigned, void*, void**) { return cuModuleLoadData(out, image); }
int cuModuleLoadFatBinary(void** out, const void* image) { return cuModuleLoadData(out, image); }
int cuModuleLoad(void** out, const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  return bytes.empty() ? int(file_not_found) : load(out, bytes.data(), bytes.size());
}
int cuModuleUnload(void*) { return ok; }  // its functions' names stay in the record
int cuModuleGetFunction(void** out, void* handle, const char* name) {
  Module& module = *static_cast<Module*>(handle);
  const std::lock_guard lock(module.mutex);
  auto& function = module.functions[name];
  if (!function) {
    const auto code = module.codes.find(name);
    function = std::make_unique<Function>(name, code == module.codes.end() ? KernelCode{} : code->second);
  }
  *out = function.get();
  return ok;
}
int cuModuleGetGlobal_v2(unsigned long long* out, std::size_t* bytes, void*, const char*) {
  if (out) *out = reinterpret_cast<unsigned long long>(reserve(1));
  if (bytes) *bytes = 8;
  return ok;
}
int cuLibraryLoadData(void** out, const void* image, void*, void**, unsigned, void*, void**, unsigned) {
  return cuModuleLoadData(out, image);
}
int cuLibraryLoadFromFile(void** out, const char* path, void*, void**, unsigned, void*, void**, unsigned) {
  return cuModuleLoad(out, path);
}
int cuLibraryUnload(void*) { return ok; }
int cuLibraryGetKernel(void** out, void* library, const char* name) { return cuModuleGetFunction(out, library, name); }
int cuKernelGetFunction(void** out, void* kernel) {
  *out = kernel;
  return ok;
}
int cuFuncGetAttribute(int* out, int attribute, void* f) {
  const KernelCode& code = static_cast<Function*>(f)->code();
  switch (attribute) {
    case 0: *out = 1024; break;  // threads a block
    case 1: *out = code.shared_bytes; break;
    case 4: *out = code.registers; break;
    case 5:
    case 6: *out = int(card().sm); break;            // versions of PTX and code
    case 8: *out = int(card().shared_bytes); break;  // dynamic shared memory
    default: *out = 0;
  }
  return ok;
}
int cuKernelGetAttribute(int* out, int attribute, void* kernel, int) { return cuFuncGetAttribute(out, attribute, kernel); }
int cuFuncSetAttribute(void*, int, int) { return ok; }
int cuKernelSetAttribute(int, int, void*, int) { return ok; }
int cuFuncSetCacheConfig(void*, int) { return ok; }
int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared_bytes,
                   StreamHandle stream, void** parameters, void**) {
  launch(*static_cast<Function*>(f), {gx, gy, gz}, {bx, by, bz}, shared_bytes, stream, parameters);
  return ok;
}
int cuLaunchKernelEx(const DriverLaunchConfig* c, void* f, void** parameters, void**) {
  launch(*static_cast<Function*>(f), {c->grid_x, c->grid_y, c->grid_z}, {c->block_x, c->block_y, c->block_z}, c->shared_bytes, c->stream,
         parameters);
  return ok;
}
int cuLaunchCooperativeKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared_bytes,
                              StreamHandle stream, void** parameters) {
  return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared_bytes, stream, parameters, nullptr);
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, void* f, int threads, std::size_t shared_bytes) {
  *out = resident_blocks(static_cast<Function*>(f)->code(), threads, shared_bytes);
  return ok;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, void* f, int threads, std::size_t shared_bytes, unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(out, f, threads, shared_bytes);
}
int cuOccupancyMaxActiveClusters(int* out, void*, const DriverLaunchConfig*) {
  *out = int(card().units);
  return ok;
}
int cuTensorMapEncodeTiled(void* map) {  // its other parameters describe the tensor
  std::memset(map, 0, 128);
  return ok;
}

int cuPointerGetAttribute(void* out, int attribute, unsigned long long p) {
  enum { context = 1, memory_type, device_pointer, host_pointer, is_managed = 8, device_ordinal = 9 };
  int d = 0;
  const bool ours = on_device(address(p), &d);
  const HostPart part = ours ? HostPart{} : on_host(address(p));
  if (!ours && !part.found) return invalid_value;
  const unsigned type = ours ? 2 : 1;
  const bool is_host_managed = part.found && part.sort == Sort::managed;
  void* const of = context_of(d);
  switch (attribute) {
    case context: std::memcpy(out, &of, sizeof of); break;
    case memory_type: std::memcpy(out, &type, sizeof type); break;
    case device_pointer:
    case host_pointer: std::memcpy(out, &p, sizeof p); break;
    case is_managed: *static_cast<unsigned*>(out) = is_host_managed; break;
    case device_ordinal: std::memcpy(out, &d, sizeof d); break;
    default: std::memset(out, 0, sizeof(int));
  }
  return ok;
}
int cuPointerSetAttribute(const void*, int, unsigned long long) { return ok; }
int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) { return cudaMemGetInfo(free, total); }
int cuMemAlloc_v2(void** out, std::size_t bytes) { return cudaMalloc(out, bytes); }
int cuMemFree_v2(unsigned long long p) { return cudaFree(address(p)); }
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, StreamHandle s) {
  copy(address(to), from, bytes, s);
  return ok;
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, StreamHandle s) {
  copy(to, address(from), bytes, s);
  return ok;
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, std::size_t bytes, StreamHandle s) {
  copy(address(to), address(from), bytes, s);
  return ok;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, std::size_t bytes) { return cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr); }
int cuMemcpyDtoH_v2(void* to, unsigned long long from, std::size_t bytes) { return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr); }
int cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, std::size_t n) { return cuMemcpyDtoDAsync_v2(to, from, n, nullptr); }
int cuMemsetD8Async(unsigned long long p, unsigned char value, std::size_t bytes, StreamHandle s) {
  copied(Way::fill, bytes, s);
  know_filled(address(p), bytes, value);
  return ok;
}
int cuMemsetD8_v2(unsigned long long p, unsigned char value, std::size_t bytes) { return cuMemsetD8Async(p, value, bytes, nullptr); }
int cuMemsetD32Async(unsigned long long p, unsigned, std::size_t words, StreamHandle s) {
  copied(Way::fill, words * 4, s);
  forget(address(p), words * 4);
  return ok;
}

// Virtual memory, which expandable segments use. A handle is memory taken from the card, whose own address is only its name; a reserved range
// is addresses of the card without memory.
int cuMemGetAllocationGranularity(std::size_t* out, const void*, int) {
  *out = 2 << 20;
  return ok;
}
int cuMemCreate(void** handle, std::size_t bytes, const void* properties, unsigned long long) {
  int before = device();
  int location = before;  // CUmemAllocationProp: type, handle types, location type, location id
  std::memcpy(&location, static_cast<const char*>(properties) + 12, sizeof location);
  if (location >= 0 && location < devices()) device() = location;
  *handle = take(bytes, "cuMemCreate");
  device() = before;
  return *handle ? ok : out_of_memory;
}
int cuMemRelease(void* handle) { return give(handle, "cuMemRelease") ? ok : invalid_value; }
int cuMemAddressReserve(void** out, std::size_t bytes, std::size_t, unsigned long long, unsigned long long) {
  *out = reserve(bytes);
  return *out ? ok : out_of_memory;
}
int cuMemAddressFree(unsigned long long, std::size_t) { return ok; }
int cuMemMap(unsigned long long, std::size_t, std::size_t, void*, unsigned long long) { return ok; }
int cuMemUnmap(unsigned long long, std::size_t) { return ok; }
int cuMemSetAccess(unsigned long long, std::size_t, const void*, std::size_t) { return ok; }

int cudaStreamSynchronize(StreamHandle);
int cudaStreamQuery(StreamHandle);
int cudaStreamWaitEvent(StreamHandle, void*, unsigned);
int cudaStreamCreateWithPriority(StreamHandle*, unsigned, int);
int cudaEventRecord(void*, StreamHandle);
int cudaEventCreateWithFlags(void**, unsigned);
int cudaEventSynchronize(void*);
int cudaEventQuery(void*);
int cudaEventDestroy(void*);
int cudaEventElapsedTime(float*, void*, void*);
int cudaStreamIsCapturing(StreamHandle, int*);
int cuStreamSynchronize(StreamHandle s) { return cudaStreamSynchronize(s); }
int cuStreamQuery(StreamHandle s) { return cudaStreamQuery(s); }
int cuStreamWaitEvent(StreamHandle s, void* e, unsigned flags) { return cudaStreamWaitEvent(s, e, flags); }
int cuStreamCreate(StreamHandle* out, unsigned flags) { return cudaStreamCreateWithPriority(out, flags, 0); }
int cuStreamCreateWithPriority(StreamHandle* out, unsigned flags, int priority) {
  return cudaStreamCreateWithPriority(out, flags, priority);
}
int cuStreamDestroy_v2(StreamHandle) { return ok; }
int cuStreamIsCapturing(StreamHandle s, int* out) { return cudaStreamIsCapturing(s, out); }
int cuStreamGetCtx(StreamHandle s, void** out) {
  *out = context_of(stream_of(s).device);
  return ok;
}
int cuStreamWriteValue32_v2(StreamHandle, unsigned long long, unsigned, unsigned) { return ok; }
int cuStreamWaitValue32_v2(StreamHandle, unsigned long long, unsigned, unsigned) { return ok; }
int cuEventCreate(void** out, unsigned flags) { return cudaEventCreateWithFlags(out, flags); }
int cuEventRecord(void* e, StreamHandle s) { return cudaEventRecord(e, s); }
int cuEventSynchronize(void* e) { return cudaEventSynchronize(e); }
int cuEventQuery(void* e) { return cudaEventQuery(e); }
int cuEventDestroy_v2(void* e) { return cudaEventDestroy(e); }
int cuEventElapsedTime_v2(float* ms, void* a, void* b) { return cudaEventElapsedTime(ms, a, b); }
}
