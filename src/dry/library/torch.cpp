// PyTorch's own report of its memory. libc10_cuda.so calls these functions of libc10.so for every block that its caching allocator hands out or
// takes back, and before it raises its error; being loaded first, these definitions hear them and hand them on. Their last argument is a pair
// of bytes: the kind of device and its index.
#include "dry/library/torch.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "dry/library/memory.h"
#include "dry/library/next.h"
#include "dry/library/pace.h"
#include "dry/library/python.h"
#include "dry/library/recorder.h"
#include "dry/library/values.h"
#include "dry/library/watchdog.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

namespace {

using namespace headroom::dry;

constexpr unsigned kind_cuda = 1;

struct Device {
  std::atomic<std::uint64_t> allocated = 0, reserved = 0, peak_allocated = 0, peak_reserved = 0;
};
Device torch_devices[256];
std::atomic<std::uint64_t> all_asked = 0;

void heard(void* p, std::int64_t bytes, std::size_t allocated, std::size_t reserved, std::uint16_t where) {
  if ((where & 0xff) != kind_cuda) return;
  if (bytes < 0) forget(p, std::size_t(-bytes));
  if (bytes > 0) {
    all_asked += std::uint64_t(bytes);
    pace_block();
    block_taken(p, std::size_t(bytes));
  } else {
    watchdog_gives();
    block_given(p);
  }
  Device& d = torch_devices[where >> 8];
  d.allocated = allocated;
  d.reserved = reserved;
  d.peak_allocated = std::max<std::uint64_t>(d.peak_allocated, allocated);
  d.peak_reserved = std::max<std::uint64_t>(d.peak_reserved, reserved);
  wait_for_place({.address = reinterpret_cast<std::uint64_t>(p),
                  .bytes = bytes,
                  .allocated = allocated,
                  .reserved = reserved,
                  .device = std::uint32_t(where >> 8),
                  .stream = last_stream(),
                  .place = here()});
}

}  // namespace

namespace headroom::dry {

TorchPeak torch_peak(int device, bool reset) {
  Device& d = torch_devices[device & 255];
  const TorchPeak peak{d.peak_allocated, d.peak_reserved};
  if (reset) {
    d.peak_allocated = d.allocated.load();
    d.peak_reserved = d.reserved.load();
  }
  return peak;
}

std::uint64_t torch_asked() { return all_asked; }

bool torch_tries_convolutions() {
  static void* const library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return false;
  using Settings = void* (*)();
  using Tries = bool (*)(const void*);
  static const auto settings = reinterpret_cast<Settings>(dlsym(library, "_ZN2at13globalContextEv"));
  static const auto tries = reinterpret_cast<Tries>(dlsym(library, "_ZNK2at7Context14benchmarkCuDNNEv"));
  return settings && tries && tries(settings());
}

}  // namespace headroom::dry

// NOLINTNEXTLINE: the mangled names of PyTorch 2.x
#define MEMORY_NAME "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define OUT_OF_MEMORY_NAME "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"

extern "C" {
void headroom_dry_hear_memory(void*, std::int64_t, std::size_t, std::size_t, std::uint16_t) __asm__(MEMORY_NAME);
void headroom_dry_hear_memory(void* p, std::int64_t bytes, std::size_t allocated, std::size_t reserved, std::uint16_t where) {
  static auto* const on = next<decltype(headroom_dry_hear_memory)>(MEMORY_NAME, "libc10.so", __builtin_return_address(0));
  heard(p, bytes, allocated, reserved, where);
  if (on) on(p, bytes, allocated, reserved, where);
}

void headroom_dry_hear_out_of_memory(std::int64_t, std::size_t, std::size_t, std::uint16_t) __asm__(OUT_OF_MEMORY_NAME);
void headroom_dry_hear_out_of_memory(std::int64_t bytes, std::size_t allocated, std::size_t reserved, std::uint16_t where) {
  static auto* const on = next<decltype(headroom_dry_hear_out_of_memory)>(OUT_OF_MEMORY_NAME, "libc10.so", __builtin_return_address(0));
  if ((where & 0xff) == kind_cuda) {
    Recorder& record = Recorder::get();
    raised();
    record.add(Note{Said::out_of_memory, record.name("PyTorch"), 1, std::uint64_t(bytes), std::uint32_t(where >> 8), 0, here()});
  }
  if (on) on(bytes, allocated, reserved, where);
}
}
