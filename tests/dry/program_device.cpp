// What the program asks of the device, the driver, NVML, and of a runtime by its own name.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cuda_calls.h"

namespace {

// cudaDeviceProp of CUDA 12 has 1032 bytes, of CUDA 13 1008: what is behind must stay.
void properties() {
  struct Layout {
    const char* function;
    std::size_t bytes, major, units, optin;
  };
  for (const Layout& l :
       {Layout{"cudaGetDeviceProperties_v2", 1032, 360, 388, 696}, Layout{"cudaGetDeviceProperties", 1008, 360, 384, 672}}) {
    std::vector<char> out(l.bytes + 64, 'x');
    print(call(l.function, out.data(), 0));
    const auto number = [&](std::size_t at) {
      int value;
      std::memcpy(&value, out.data() + at, sizeof value);
      return value;
    };
    std::size_t memory;
    std::memcpy(&memory, out.data() + 288, sizeof memory);
    print((long long)(memory / mib));
    print(number(l.major));
    print(number(l.units));
    print(number(l.optin));
    print(std::string(out.begin() + std::ptrdiff_t(l.bytes), out.end()) == std::string(64, 'x') && out[l.bytes - 1] == 0);
  }
  int units = 0;
  print(call("cudaDeviceGetAttribute", &units, 16, 0));
  print(units);
  print(call("cudaDeviceGetAttribute", &units, 16, 9));
}

void driver() {
  void *function = nullptr, *handle = nullptr, *range = nullptr;
  int found = -1;
  print(call("cuInit", 0u));
  print(call("cuGetProcAddress_v2", "cuMemAlloc", &function, 12000, 0ull, &found));
  print(function != nullptr && found == 0);
  print(call("cuGetProcAddress_v2", "cuNobodyHasThis", &function, 12000, 0ull, &found));
  const int where[8] = {1, 0, 1, 0};  // pinned memory on device 0
  const long long before = free_mib();
  print(call("cuMemCreate", &handle, 20 * mib, static_cast<const void*>(where), 0ull));
  print(before - free_mib());
  print(call("cuMemAddressReserve", &range, 200 * mib, std::size_t(0), Address(0), Address(0)));
  print(before - free_mib());
  print(call("cuMemMap", reinterpret_cast<Address>(range), 20 * mib, std::size_t(0), handle, 0ull));
  print(call("headroom_dry_on_device", static_cast<const void*>(range)));
  print(call("cuMemRelease", handle));
  print(before - free_mib());
  const void* table = &table;
  print(call("cuGetExportTable", &table, static_cast<const void*>("an identifier of 16 bytes")) != 0 && !table);
}

void count() {
  int n = -1;
  print(call("cudaGetDeviceCount", &n));
  print(n);
  unsigned all = 0;
  call("nvmlInit_v2");
  call("nvmlDeviceGetCount_v2", &all);
  print(all);
  void* handle = nullptr;
  print(call("nvmlDeviceGetHandleByIndex_v2", 0u, &handle));
  struct {
    unsigned long long total, free, used;
  } memory{};
  call("nvmlDeviceGetMemoryInfo", handle, &memory);
  print((long long)(memory.total / mib));
}

void smi() {
  const bool there = allocate(512 * mib) != nullptr;
  const char* const asks[] = {"nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits",
                              "nvidia-smi --query-compute-apps=used_memory --format=csv,noheader,nounits"};
  for (const char* ask : asks)
    if (!there || std::system(ask) != 0) print(-1);
  struct {
    unsigned pid;
    unsigned long long used;
    unsigned instance, compute_instance;
  } processes[2] = {};
  unsigned room = 0;
  void *handle = nullptr, *none = nullptr;
  call("nvmlDeviceGetHandleByIndex_v2", 0u, &handle);
  print(call("nvmlDeviceGetComputeRunningProcesses_v3", handle, &room, none));
  print(call("nvmlDeviceGetComputeRunningProcesses_v3", handle, &room, static_cast<void*>(processes)));
  print(room);
  print(processes[0].pid == unsigned(getpid()) && processes[1].pid == 0);
  print((long long)(processes[0].used / mib));
}

void named() {  // the runtime by its own name, not by the program's links
  const char* const file = std::getenv("NAMED_LIBRARY");
  for (const int mode : {RTLD_NOW, RTLD_NOW | RTLD_GLOBAL, RTLD_NOW | RTLD_DEEPBIND}) {
    void* const library = dlopen(file, mode);
    if (!library) std::exit(70);
    void* p = nullptr;
    print(reinterpret_cast<int (*)(void**, std::size_t)>(dlsym(library, "cudaMalloc"))(&p, 64 * mib));
    print(reinterpret_cast<int (*)()>(dlsym(library, "cudaOnlyThere"))());
    print(reinterpret_cast<int (*)(const char*)>(dlsym(library, "cudaOfItself"))(file));
    print(dlsym(library, "cudaNowhere") == nullptr && dlsym(library, "cudaFree") == nullptr && dlerror() != nullptr);
  }
  print(free_mib());
  print(dlsym(RTLD_NEXT, "cudaOnlyThere") != nullptr);  // the program's own place in the order: it comes before every library
}

void begins() {  // a library with a runtime inside
  void* const library = dlopen(std::getenv("NAMED_LIBRARY"), RTLD_NOW);
  if (!library) std::exit(70);
  reinterpret_cast<void (*)()>(dlsym(library, "cudaOfTheDriver"))();
}

}  // namespace

const Words device_words = {
    {"properties", properties}, {"driver", driver}, {"count", count}, {"smi", smi}, {"named", named}, {"begins", begins},
};
