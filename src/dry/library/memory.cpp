#include "dry/library/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "dry/addresses.h"
#include "dry/library/others.h"
#include "dry/library/recorder.h"
#include "dry/library/world.h"
#include "dry/settings.h"

namespace headroom::dry {

namespace {

// A card's addresses: the lower half is allocated in, the upper half is reserved from, once.
constexpr std::uint64_t range = std::uint64_t(1) << 41, half = range / 2;

struct DeviceMemory {
  Addresses addresses;
  std::uint64_t reserved = 0;
  int modules = 0;
};

struct HostBlock {
  std::uint64_t bytes;
  Sort sort;
  bool ours;  // else registered
};

struct Memory {
  std::mutex mutex;
  std::uint64_t base = 0;
  std::vector<DeviceMemory> devices;
  std::map<std::uint64_t, HostBlock> host;
  std::uint64_t host_used[2] = {0, 0};

  Memory() {
    const std::uint64_t bytes = range * std::uint64_t(std::max(dry::devices(), 1)) + Addresses::step;
    const auto at = reinterpret_cast<std::uint64_t>(mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    base = (at + Addresses::step - 1) / Addresses::step * Addresses::step;
    for (int i = 0; i < dry::devices(); ++i) devices.push_back({Addresses(base + std::uint64_t(i) * range + half)});
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

std::uint64_t number(const void* p) { return reinterpret_cast<std::uint64_t>(p); }

std::uint64_t used_with_lock(const Memory& m, int device) {
  return m.devices[std::size_t(device)].addresses.used() + card().context_bytes + card().others_bytes + others_use(physical(device));
}

void changed(const Memory& m, int device, const void* p, std::int64_t bytes, const char* function) {
  const std::uint64_t now = m.devices[std::size_t(device)].addresses.used();
  publish_use(physical(device), now + card().context_bytes);
  Recorder& record = Recorder::get();
  record.add(Driver{number(p), bytes, now, std::uint32_t(device), record.name(function)});
}

std::uint64_t pinned_limit() {
  static const std::uint64_t limit = [] {
    const char* const text = std::getenv(pinned_variable);
    return text ? std::strtoull(text, nullptr, 10) : 0;
  }();
  return limit;
}

void host_changed(Memory& m, const void* p, std::int64_t bytes, Sort sort, const char* function) {
  std::uint64_t& now = m.host_used[sort == Sort::managed];
  now += std::uint64_t(bytes);
  Recorder& record = Recorder::get();
  record.add(Host{number(p), bytes, now, sort == Sort::managed, record.name(function)});
}

}  // namespace

void* take(std::size_t bytes, const char* function) {
  Memory& m = memory();
  const int d = device();
  if (d >= int(m.devices.size())) return nullptr;
  const std::unique_lock lock(m.mutex);
  Addresses& addresses = m.devices[std::size_t(d)].addresses;
  const std::uint64_t before = addresses.used();
  if (used_with_lock(m, d) + bytes > card().memory_bytes) {
    note(Said::full, function, bytes);
    return nullptr;
  }
  void* const p = reinterpret_cast<void*>(addresses.take(bytes));
  changed(m, d, p, std::int64_t(addresses.used() - before), function);
  return p;
}

bool give(void* p, const char* function) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const std::uint64_t d = (number(p) - m.base) / range;
  if (number(p) < m.base || d >= m.devices.size()) return false;
  Addresses& addresses = m.devices[d].addresses;
  const std::uint64_t before = addresses.used();
  if (!addresses.give(number(p))) return false;
  changed(m, int(d), p, std::int64_t(addresses.used()) - std::int64_t(before), function);
  return true;
}

void* reserve(std::size_t bytes) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  std::uint64_t& next = m.devices[std::size_t(device())].reserved;
  const std::uint64_t size = (bytes + Addresses::page - 1) / Addresses::page * Addresses::page;
  if (next + size > half) return nullptr;
  void* const p = reinterpret_cast<void*>(m.base + std::uint64_t(device()) * range + half + next);
  next += size;
  return p;
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
  const Memory& m = memory();
  const std::uint64_t d = (number(p) - m.base) / range;
  if (number(p) < m.base || d >= m.devices.size()) return false;
  if (device) *device = int(d);
  return true;
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
