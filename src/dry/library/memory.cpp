#include "dry/library/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/pinned_pages.h"
#include "dry/addresses.h"
#include "dry/library/others.h"
#include "dry/library/recorder.h"
#include "dry/library/world.h"
#include "dry/settings.h"

namespace headroom::dry {

namespace {

std::uint64_t number(const void* p) { return reinterpret_cast<std::uint64_t>(p); }

// The process's own: the system chooses, as it does for the driver. Nothing can be read or written there.
class ProcessSpace final : public AddressSpace {
 public:
  Address take(std::uint64_t n) override {
    const std::uint64_t size = n + step;
    void* const p = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return 0;
    const Address low = number(p), high = low + size, end = high / step * step, begin = end - n;
    give(low, begin - low);
    give(end, high - end);
    return begin;
  }
  void give(Address at, std::uint64_t n) override {
    if (n != 0) munmap(reinterpret_cast<void*>(at), n);
  }
};

struct DeviceMemory {
  Addresses addresses;
  int modules = 0;
  bool context = false;            // this process has one there
  std::uint64_t pinned_pages = 0;  // taken to map the process's pinned memory
  std::uint64_t beside = 0;        // what libraries have (beside.h)
  std::uint64_t used() const { return addresses.used() + pinned_pages + beside; }
};

struct Reservation {
  std::uint64_t bytes;
  int device;
};

struct HostBlock {
  std::uint64_t bytes;
  Sort sort;
  bool ours;  // else registered
};

struct Memory {
  std::mutex mutex;
  ProcessSpace space;
  std::vector<DeviceMemory> devices;
  std::map<std::uint64_t, Reservation> reservations;
  std::map<std::uint64_t, HostBlock> host;
  std::uint64_t host_used[2] = {0, 0};

  Memory() {
    for (int i = 0; i < dry::devices(); ++i) devices.push_back({Addresses(space)});
  }

  int device_of(std::uint64_t at) const {  // −1: of none
    for (std::size_t d = 0; d < devices.size(); ++d)
      if (devices[d].addresses.reservation(at)) return int(d);
    auto r = reservations.upper_bound(at);
    if (r == reservations.begin()) return -1;
    --r;
    return at - r->first < r->second.bytes ? r->second.device : -1;
  }
};

Memory& memory() {
  static Memory& one = *new Memory;
  return one;
}

struct Blocks {
  std::mutex mutex;
  std::map<std::uint64_t, std::uint64_t> bytes;
};
Blocks& blocks() {
  static Blocks& one = *new Blocks;
  return one;
}

std::uint64_t used_with_lock(const Memory& m, int device) {
  return m.devices[std::size_t(device)].used() + card().context_bytes + card().others_bytes + others_use(physical(device));
}

void changed(const Memory& m, int device, const void* p, std::int64_t bytes, const char* function) {
  const std::uint64_t now = m.devices[std::size_t(device)].used();
  publish_use(physical(device), now + card().context_bytes);
  Recorder& record = Recorder::get();
  record.add(Driver{number(p), bytes, now, others_use(physical(device)), std::uint32_t(device), record.name(function)});
}

std::uint64_t pinned_limit() {
  static const std::uint64_t limit = [] {
    const char* const text = std::getenv(pinned_variable);
    return text ? std::strtoull(text, nullptr, 10) : 0;
  }();
  return limit;
}

// Every card where the process has a context maps what it pins.
void map_pinned(Memory& m) {
  const std::uint64_t pages = bytes_of_pinned_pages(m.host_used[0]);
  for (std::size_t i = 0; i < m.devices.size(); ++i) {
    DeviceMemory& d = m.devices[i];
    const std::uint64_t before = d.pinned_pages;
    d.pinned_pages = d.context ? pages : 0;
    if (d.pinned_pages != before) changed(m, int(i), nullptr, std::int64_t(d.pinned_pages - before), "pages of pinned memory");
  }
}

void context_on(Memory& m, int device) {
  DeviceMemory& d = m.devices[std::size_t(device)];
  if (d.context) return;
  d.context = true;
  map_pinned(m);
}

void host_changed(Memory& m, const void* p, std::int64_t bytes, Sort sort, const char* function) {
  std::uint64_t& now = m.host_used[sort == Sort::managed];
  now += std::uint64_t(bytes);
  Recorder& record = Recorder::get();
  record.add(Host{number(p), bytes, now, sort == Sort::managed, record.name(function)});
  if (sort == Sort::pinned) map_pinned(m);
}

std::atomic<std::uint64_t> errors{0};  // that PyTorch raised
bool unlimited() { return card().unlimited > 0 && errors + 1 >= card().unlimited; }

}  // namespace

void raised() { ++errors; }

void* take(std::size_t bytes, const char* function) {
  Memory& m = memory();
  const int d = device();
  if (d >= int(m.devices.size())) return nullptr;
  const std::unique_lock lock(m.mutex);
  context_on(m, d);
  Addresses& addresses = m.devices[std::size_t(d)].addresses;
  const std::uint64_t before = addresses.used();
  if (!unlimited() && used_with_lock(m, d) + bytes > card().memory_bytes) {
    note(Said::full, function, bytes);
    return nullptr;
  }
  void* const p = reinterpret_cast<void*>(addresses.take(bytes));
  if (!p) return nullptr;
  changed(m, d, p, std::int64_t(addresses.used() - before), function);
  return p;
}

bool give(void* p, const char* function) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const int d = m.device_of(number(p));
  if (d < 0) return false;
  Addresses& addresses = m.devices[std::size_t(d)].addresses;
  const std::uint64_t before = addresses.used();
  if (!addresses.give(number(p))) return false;
  changed(m, d, p, std::int64_t(addresses.used()) - std::int64_t(before), function);
  return true;
}

void* reserve(std::size_t bytes) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const std::uint64_t size = (bytes + Addresses::step - 1) / Addresses::step * Addresses::step, at = m.space.take(size);
  if (at) m.reservations[at] = {size, device()};
  return reinterpret_cast<void*>(at);
}

void context_made() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (device() >= int(m.devices.size())) return;
  context_on(m, device());
  changed(m, device(), nullptr, 0, "context");
}

void beside_is(int device, std::uint64_t bytes) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (device >= int(m.devices.size())) return;
  std::uint64_t& now = m.devices[std::size_t(device)].beside;
  const std::uint64_t before = std::exchange(now, bytes);
  if (now != before) changed(m, device, nullptr, std::int64_t(now - before), "libraries");
}

// What an H200's driver was seen to do in logs of four models: with the first module it takes a page for itself; once the third is there its
// 414 MiB have moved.
void module_loaded() {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (device() >= int(m.devices.size())) return;
  DeviceMemory& d = m.devices[std::size_t(device())];
  ++d.modules;
  if (d.modules == 1) d.addresses.take_own(Addresses::page);
  if (d.modules == 3) d.addresses.grow_local();
}

std::uint64_t used(int device) {
  const std::lock_guard lock(memory().mutex);
  return device < int(memory().devices.size()) ? std::min(used_with_lock(memory(), device), card().memory_bytes) : 0;
}

std::uint64_t free_bytes(int device) { return card().memory_bytes - used(device); }

bool on_device(const void* p, int* device) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const int d = m.device_of(number(p));
  if (d >= 0 && device) *device = d;
  return d >= 0;
}

void* host_take(std::size_t bytes, Sort sort, const char* function) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const std::size_t size = std::max<std::size_t>((bytes + 4095) / 4096 * 4096, 4096);
  if (sort == Sort::pinned && pinned_limit() && m.host_used[0] + size > pinned_limit()) {
    note(Said::host_full, function, bytes);
    return nullptr;
  }
  void* const p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  m.host[number(p)] = {size, sort, true};
  host_changed(m, p, std::int64_t(size), sort, function);
  return p;
}

bool host_register(void* p, std::size_t bytes, const char* function) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (pinned_limit() && m.host_used[0] + bytes > pinned_limit()) {
    note(Said::host_full, function, bytes);
    return false;
  }
  m.host[number(p)] = {bytes, Sort::pinned, false};
  host_changed(m, p, std::int64_t(bytes), Sort::pinned, function);
  return true;
}

bool host_give(void* p, const char* function) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto at = m.host.find(number(p));
  if (at == m.host.end()) return false;
  const HostBlock block = at->second;
  m.host.erase(at);
  if (block.ours) munmap(p, block.bytes);
  host_changed(m, p, -std::int64_t(block.bytes), block.sort, function);
  return true;
}

HostPart on_host(const void* p) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  auto at = m.host.upper_bound(number(p));
  if (at == m.host.begin()) return {};
  --at;
  return {at->first + at->second.bytes > number(p), at->second.sort};
}

void block_taken(void* p, std::size_t bytes) {
  const std::lock_guard lock(blocks().mutex);
  blocks().bytes[number(p)] = bytes;
}

void block_given(void* p) {
  const std::lock_guard lock(blocks().mutex);
  blocks().bytes.erase(number(p));
}

std::uint64_t rest_of_block(const void* p) {
  const std::lock_guard lock(blocks().mutex);
  auto at = blocks().bytes.upper_bound(number(p));
  if (at == blocks().bytes.begin()) return 0;
  --at;
  const std::uint64_t end = at->first + at->second;
  return end > number(p) ? end - number(p) : 0;
}

}  // namespace headroom::dry
