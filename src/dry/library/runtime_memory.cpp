// The CUDA runtime: memory of the card and of the host, copies, pools.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "dry/library/last_error.h"
#include "dry/library/memory.h"
#include "dry/library/public.h"
#include "dry/library/python.h"
#include "dry/library/recorder.h"
#include "dry/library/values.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;

namespace {

int given(void** out, void* p) {
  *out = p;
  return p ? int(ok) : failed(out_of_memory);
}

// The sums of a device's pools, and the most that they were.
struct InPools {
  std::mutex mutex;
  std::uint64_t live = 0, taken = 0, most_live = 0, most_taken = 0;
  void change(int device, std::int64_t live_bytes, std::int64_t taken_bytes) {
    const std::lock_guard lock(mutex);
    live += std::uint64_t(live_bytes);
    taken += std::uint64_t(taken_bytes);
    if (live <= most_live && taken <= most_taken) return;
    most_live = std::max(most_live, live);
    most_taken = std::max(most_taken, taken);
    Recorder::get().add(headroom::dry::Pool{most_live, most_taken, std::uint32_t(device), 0});
  }
};
InPools& in_pools(int device) {
  static InPools& all = *new InPools[64];
  return (&all)[device & 63];
}

// A pool of cudaMallocAsync: it takes memory from the card in parts of 32 MiB, and keeps it; what is free beside each other is one. (What a driver's
// pool does inside is not published; the record says that it was used.)
struct MemoryPool {
  static constexpr std::uint64_t part = 32 << 20, grain = 512;
  int on = 0;  // the device
  std::mutex mutex;
  std::map<char*, std::uint64_t> live, free;          // bytes by address
  std::set<std::pair<std::uint64_t, char*>> by_size;  // the free ones
  std::uint64_t used = 0, reserved = 0, most_used = 0, most_reserved = 0;

  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    const std::uint64_t size = std::max<std::uint64_t>((bytes + grain - 1) / grain * grain, grain);
    std::uint64_t fresh = 0;
    auto best = by_size.lower_bound({size, nullptr});
    if (best == by_size.end()) {
      fresh = (size + part - 1) / part * part;
      char* const p = static_cast<char*>(headroom::dry::take(fresh, "cudaMallocAsync"));
      if (!p) return nullptr;
      reserved += fresh;
      add(p, fresh);
      best = by_size.lower_bound({size, nullptr});
    }
    const auto [room, p] = *best;
    remove(p);
    if (room > size) add(p + size, room - size);
    live[p] = size;
    used += size;
    most_used = std::max(most_used, used);
    most_reserved = std::max(most_reserved, reserved);
    in_pools(on).change(on, std::int64_t(size), std::int64_t(fresh));
    return p;
  }
  bool give(void* p) {
    const std::lock_guard lock(mutex);
    const auto at = live.find(static_cast<char*>(p));
    if (at == live.end()) return false;
    used -= at->second;
    in_pools(on).change(on, -std::int64_t(at->second), 0);
    add(at->first, at->second);
    live.erase(at);
    return true;
  }

 private:
  void remove(char* p) {
    const auto at = free.find(p);
    by_size.erase({at->second, p});
    free.erase(at);
  }
  void add(char* p, std::uint64_t bytes) {
    if (const auto next = free.find(p + bytes); next != free.end()) {
      char* const after = next->first;
      bytes += next->second;
      remove(after);
    }
    if (auto before = free.lower_bound(p); before != free.begin() && (--before)->first + before->second == p) {
      p = before->first;
      bytes += before->second;
      remove(p);
    }
    free[p] = bytes;
    by_size.emplace(bytes, p);
  }
};

MemoryPool& pool_of(int device) {
  static MemoryPool& pools = *[] {
    auto* const made = new MemoryPool[64];
    for (int i = 0; i < 64; ++i) made[i].on = i;
    return made;
  }();
  return (&pools)[device & 63];
}
MemoryPool& pool_of(void* handle) { return handle ? *static_cast<MemoryPool*>(handle) : pool_of(device()); }

// Another process's memory, as one handle of 64 bytes says it.
struct Shared {
  char magic[8];
  std::int32_t pid, device;
  std::uint64_t address;
};
constexpr char shared_magic[8] = "dry-ipc";

}  // namespace

extern "C" {
int cudaMalloc(void** out, std::size_t bytes) { return bytes ? given(out, take(bytes, "cudaMalloc")) : (*out = nullptr, int(ok)); }
int cudaFree(void* p) {
  if (!p || pool_of(device()).give(p) || give(p, "cudaFree") || host_give(p, "cudaFree")) return ok;  // a pool's part may begin at p
  return failed(invalid_value);
}
int cudaMallocPitch(void** out, std::size_t* pitch, std::size_t width, std::size_t rows) {
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(out, *pitch * rows);
}
int cudaMallocManaged(void** out, std::size_t bytes, unsigned) {  // real memory of the host: both sides may write there
  return given(out, host_take(bytes, Sort::managed, "cudaMallocManaged"));
}
int cudaMemPrefetchAsync(const void*, std::size_t) { return ok; }  // its other parameters differ between versions; none matters
int cudaMemPrefetchAsync_v2(const void*, std::size_t) { return ok; }
int cudaMemAdvise(const void*, std::size_t) { return ok; }
int cudaMemAdvise_v2(const void*, std::size_t) { return ok; }
int cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = card().memory_bytes;
  *free = free_bytes(device());
  return ok;
}

int cudaHostAlloc(void** out, std::size_t bytes, unsigned) { return given(out, host_take(bytes, Sort::pinned, "cudaHostAlloc")); }
int cudaMallocHost(void** out, std::size_t bytes) { return given(out, host_take(bytes, Sort::pinned, "cudaMallocHost")); }
int cudaFreeHost(void* p) { return !p || host_give(p, "cudaFreeHost") ? int(ok) : failed(invalid_value); }
int cudaHostRegister(void* p, std::size_t bytes, unsigned) {
  return host_register(p, bytes, "cudaHostRegister") ? int(ok) : failed(out_of_memory);
}
int cudaHostUnregister(void* p) {
  host_give(p, "cudaHostUnregister");
  return ok;
}
int cudaHostGetDevicePointer(void** out, void* p, unsigned) {
  *out = p;
  return ok;
}
int cudaHostGetFlags(unsigned* flags, void*) {
  *flags = 0;
  return ok;
}
int cudaPointerGetAttributes(PointerAttributes* out, const void* p) {
  int on = device();
  const bool ours = on_device(p, &on);
  const HostPart part = ours ? HostPart{} : on_host(p);
  void* const address = const_cast<void*>(p);
  const MemoryType type = ours                         ? MemoryType::device
                          : !part.found                ? MemoryType::unregistered
                          : part.sort == Sort::managed ? MemoryType::managed
                                                       : MemoryType::host;
  const bool card_reaches = ours || part.found;
  // CUDA 12's struct ends before `reserved`.
  const PointerAttributes all{type, card_reaches ? on : -2, card_reaches ? address : nullptr, ours ? nullptr : address, {}};
  std::memcpy(out, &all, offsetof(PointerAttributes, reserved));
  return ok;
}

int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int, StreamHandle stream) {
  copy(to, from, bytes, stream);
  return ok;
}
int cudaMemcpy(void* to, const void* from, std::size_t bytes, int) {
  copy(to, from, bytes, nullptr);
  return ok;
}
int cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, StreamHandle stream) {
  copy(to, from, bytes, stream);
  return ok;
}
int cudaMemcpyPeer(void* to, int, const void* from, int, std::size_t bytes) {
  copy(to, from, bytes, nullptr);
  return ok;
}
int cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t rows, int,
                      StreamHandle stream) {
  constexpr std::size_t most_rows = 4096;  // row by row, with values; larger ones are one copy without
  for (std::size_t i = 0; i < rows && rows <= most_rows; ++i)
    copy(static_cast<char*>(to) + i * to_pitch, static_cast<const char*>(from) + i * from_pitch, width, stream);
  if (rows > most_rows) {
    copied(on_device(to) ? Way::to_device : Way::to_host, width * rows, stream);
    if (on_device(to)) forget(to, to_pitch * rows);
  }
  return ok;
}
int cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t rows, int kind) {
  return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, kind, nullptr);
}
int cudaMemsetAsync(void* p, int value, std::size_t bytes, StreamHandle stream) {
  copied(Way::fill, bytes, stream);
  if (on_device(p))
    know_filled(p, bytes, static_cast<unsigned char>(value));
  else
    std::memset(p, value, bytes);
  return ok;
}
int cudaMemset(void* p, int value, std::size_t bytes) { return cudaMemsetAsync(p, value, bytes, nullptr); }

// Pools.
int cudaMallocAsync(void** out, std::size_t bytes, StreamHandle) {
  accepted("cudaMallocAsync");
  return given(out, pool_of(device()).take(bytes));
}
int cudaMallocFromPoolAsync(void** out, std::size_t bytes, void* pool, StreamHandle) {
  accepted("cudaMallocFromPoolAsync");
  return given(out, pool_of(pool).take(bytes));
}
int cudaFreeAsync(void* p, StreamHandle) { return cudaFree(p); }
int cudaDeviceGetDefaultMemPool(void** out, int d) {
  *out = &pool_of(d);
  return ok;
}
int cudaDeviceGetMemPool(void** out, int d) { return cudaDeviceGetDefaultMemPool(out, d); }
int cudaDeviceSetMemPool(int, void*) { return ok; }
int cudaMemPoolCreate(void** out, const void*) {
  auto* const pool = new MemoryPool;
  pool->on = device();
  *out = pool;
  return ok;
}
int cudaMemPoolDestroy(void*) { return ok; }
int cudaMemPoolSetAttribute(void* handle, int attribute, void* value) {
  MemoryPool& pool = pool_of(handle);
  const std::lock_guard lock(pool.mutex);
  if (attribute == 6) pool.most_reserved = pool.reserved;  // cudaMemPoolAttrReservedMemHigh
  if (attribute == 8) pool.most_used = pool.used;          // cudaMemPoolAttrUsedMemHigh
  (void)value;
  return ok;
}
int cudaMemPoolGetAttribute(void* handle, int attribute, void* out) {
  MemoryPool& pool = pool_of(handle);
  const std::lock_guard lock(pool.mutex);
  const std::uint64_t values[] = {pool.reserved, pool.most_reserved, pool.used, pool.most_used};
  if (attribute >= 5 && attribute <= 8)
    std::memcpy(out, &values[attribute - 5], sizeof values[0]);
  else
    std::memset(out, 0, sizeof(int));
  return ok;
}
int cudaMemPoolSetAccess(void*, const void*, std::size_t) { return ok; }
int cudaMemPoolTrimTo(void*, std::size_t) { return ok; }
int cudaDeviceGetGraphMemAttribute(int, int, void* out) {
  std::memset(out, 0, sizeof(std::uint64_t));
  return ok;
}
int cudaDeviceSetGraphMemAttribute(int, int, void*) { return ok; }
int cudaDeviceGraphMemTrim(int) { return ok; }

// Memory of one process in another: an address there, without a byte of the card.
int cudaIpcGetMemHandle(char* out, void* p) {
  Shared s{{}, std::int32_t(getpid()), device(), reinterpret_cast<std::uint64_t>(p)};
  std::memcpy(s.magic, shared_magic, sizeof s.magic);
  std::memset(out, 0, 64);
  std::memcpy(out, &s, sizeof s);
  return ok;
}
struct Handle64 {
  char bytes[64];
};
int cudaIpcOpenMemHandle(void** out, Handle64 handle, unsigned) {
  if (std::memcmp(handle.bytes, shared_magic, sizeof shared_magic) != 0) return failed(invalid_value);
  context_made();
  constexpr std::size_t largest_block = std::size_t(1) << 36;  // the handle does not say how large it is
  return given(out, reserve(largest_block));
}
int cudaIpcCloseMemHandle(void*) { return ok; }
int cudaIpcGetEventHandle(char* out, void*) {
  std::memset(out, 0, 64);
  return ok;
}
int cudaIpcOpenEventHandle(void** out, Handle64) {
  *out = make_event();
  return ok;
}
}
