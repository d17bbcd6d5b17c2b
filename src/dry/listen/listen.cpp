// libheadroom_listen.so — loaded into a program that runs on a real card: hears PyTorch's allocator and the observer, and writes them into the
// record of a dry run, so that what is measured has the names of what was forecast. It answers nothing and changes nothing.
// HEADROOM_LISTEN=peaks: only blocks that raise a peak are written, for runs that last.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "dry/card.h"
#include "dry/doors.h"
#include "dry/library/recorder.h"
#include "dry/library/world.h"

namespace headroom::dry {

// What the recorder asks of its world: nothing is described here, everything is real.
const Card& card() {
  static const Card none{.name = "", .memory_bytes = 0};
  return none;
}
int devices() { return 0; }
void say(const char*, const char*) {}

namespace {

constexpr unsigned kind_cuda = 1, most_devices = 64;

bool peaks_alone() {
  static const char* const how = std::getenv("HEADROOM_LISTEN");
  static const bool alone = how && std::strcmp(how, "peaks") == 0;
  return alone;
}

bool raises_a_peak(unsigned device, std::size_t allocated, std::size_t reserved) {
  struct Peak {
    std::size_t allocated = 0, reserved = 0;
  };
  static std::mutex mutex;
  static Peak peaks[most_devices];
  const std::lock_guard lock(mutex);
  Peak& p = peaks[device % most_devices];
  const bool raises = allocated > p.allocated || reserved > p.reserved;
  p.allocated = allocated > p.allocated ? allocated : p.allocated;
  p.reserved = reserved > p.reserved ? reserved : p.reserved;
  return raises;
}

thread_local std::uint32_t listening_scope = 0;

void heard(void* p, std::int64_t bytes, std::size_t allocated, std::size_t reserved, std::uint16_t where) {
  const unsigned device = where >> 8;
  if ((where & 0xff) != kind_cuda || (!raises_a_peak(device, allocated, reserved) && peaks_alone())) return;
  BlockChange block{};
  block.address = reinterpret_cast<std::uint64_t>(p);
  block.bytes = bytes;
  block.allocated = allocated;
  block.reserved = reserved;
  block.device = device;
  block.place.scope = listening_scope;
  Recorder::get().add(block);
}

}  // namespace

}  // namespace headroom::dry

using namespace headroom::dry;

#define MEMORY_NAME "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"  // PyTorch 2.x's

extern "C" {
void headroom_listen_memory(void*, std::int64_t, std::size_t, std::size_t, std::uint16_t) __asm__(MEMORY_NAME);
void headroom_listen_memory(void* p, std::int64_t bytes, std::size_t allocated, std::size_t reserved, std::uint16_t where) {
  static auto* const on = reinterpret_cast<decltype(&headroom_listen_memory)>(dlsym(RTLD_NEXT, MEMORY_NAME));
  heard(p, bytes, allocated, reserved, where);
  if (on) on(p, bytes, allocated, reserved, where);
}

int headroom_dry_version(void) { return HEADROOM_DRY_DOORS; }
void headroom_dry_mark(const char* what, const char* text, int64_t value) {
  Recorder& record = Recorder::get();
  Mark mark{};
  mark.what = record.name(what ? what : "");
  mark.text = record.name(text ? text : "");
  mark.value = value;
  record.add(mark);
}
uint32_t headroom_dry_scope(uint32_t number) {
  const std::uint32_t before = listening_scope;
  listening_scope = number;
  return before;
}
}
