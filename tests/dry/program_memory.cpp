// What the program asks of memory, on the card and on the host: its size, its values, pools.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "cuda_calls.h"

namespace {

void pool() {  // what is free side by side in a pool is one piece
  void *own = nullptr, *a = nullptr, *b = nullptr, *c = nullptr, *const stream = nullptr;
  call("cudaDeviceGetDefaultMemPool", &own, 0);
  const auto attribute = [&](int which) {
    unsigned long long value = 0;
    call("cudaMemPoolGetAttribute", own, which, static_cast<void*>(&value));
    return (long long)(value / mib);
  };
  constexpr int reserved = 5, most_used = 8;
  call("cudaMallocAsync", &a, 20 * mib, stream);
  call("cudaMallocAsync", &b, 10 * mib, stream);
  print(attribute(reserved));
  call("cudaFreeAsync", a, stream);
  call("cudaFreeAsync", b, stream);
  call("cudaMallocAsync", &c, 32 * mib, stream);
  print(c == a);
  print(attribute(reserved));
  call("cudaMallocAsync", &b, 33 * mib, stream);
  print(attribute(reserved));
  print(attribute(most_used));
  print(call("cudaFreeAsync", c, stream));
}

void memory() {
  print(free_mib());
  char* const a = allocate(64 * mib);
  print(free_mib());
  char* const b = allocate(1);
  print(free_mib());  // a shared page of 2 MiB
  print(allocate(10000 * mib) == nullptr);
  print(call("cudaGetLastError"));
  print(call("cudaGetLastError"));
  print(call("cudaFree", static_cast<void*>(a)));
  print(call("cudaFree", static_cast<void*>(b)));
  print(free_mib());
  print(call("cudaFree", static_cast<void*>(a)));  // once more: not ours any longer
  print(allocate(0) == nullptr && call("cudaGetLastError") == 1);
}

void values() {
  char* const p = allocate(mib);
  const long long sent = 42;
  copy(p, &sent, sizeof sent);
  print(read(p));
  copy(p + 64, p, sizeof sent);  // on the card
  print(read(p + 64));
  call("cudaMemsetAsync", static_cast<void*>(p), 0xff, std::size_t(4), static_cast<void*>(nullptr));
  print(read(p));         // half of it is overwritten
  print(read(p + 4096));  // not known
  const long long told = 7;
  call("headroom_dry_know", static_cast<void*>(p + 4096), sizeof told, static_cast<const void*>(&told));
  print(read(p + 4096));
  call("headroom_dry_forget", static_cast<void*>(p + 4096), std::size_t(1));
  print(read(p + 4096));
  call("headroom_dry_answer", static_cast<const void*>(&sent), sizeof sent, 1);
  print(read(p + 8192));
  print(read(p + 8192));
  const short element = 0x0203;
  call("headroom_dry_unknown", static_cast<const void*>(&element), sizeof element);
  print(read(p + 8192));
  print(read(p + 4096));  // its first byte only
  call("headroom_dry_unknown", static_cast<const void*>(nullptr), std::size_t(0));
  print(read(p + 8192));
}

// How many MiB of the host's memory a known part takes that is forgotten in 4096 places, and what lies between.
void pieces() {
  constexpr std::size_t bytes = std::size_t(256) << 10, every = 64;
  const auto resident_mib = [] {
    long whole = 0, resident = 0;
    std::FILE* const f = std::fopen("/proc/self/statm", "r");
    const int read = f ? std::fscanf(f, "%ld %ld", &whole, &resident) : 0;
    if (f) std::fclose(f);
    return read == 2 ? resident * sysconf(_SC_PAGESIZE) / (long long)mib : -1;
  };
  char* const p = allocate(bytes);
  const std::string told(bytes, 'a');
  call("headroom_dry_know", static_cast<void*>(p), bytes, static_cast<const void*>(told.data()));
  const auto before = resident_mib();
  std::vector<std::int64_t> places;  // in elements of four bytes
  for (std::size_t at = 0; at < bytes; at += every) places.push_back(std::int64_t(at / 4));
  call("headroom_dry_forget_each", static_cast<void*>(p), static_cast<const std::int64_t*>(places.data()), places.size(), std::size_t(4),
       std::size_t(4));
  print(before >= 0 && resident_mib() - before < 64);
  char held[4] = {};
  print(call("headroom_dry_known", static_cast<const void*>(p + every + 4), std::size_t(4), static_cast<void*>(held)));
  print(call("headroom_dry_known", static_cast<const void*>(p + every), std::size_t(4), static_cast<void*>(held)));
}

void host() {
  void *p = nullptr, *q = nullptr, *m = nullptr;
  print(call("cudaHostAlloc", &p, 8 * mib, 0u));
  std::memset(p, 1, 8 * mib);  // it is real
  print(call("cudaHostAlloc", &q, 100 * mib, 0u));
  print(call("cudaMallocManaged", &m, 100 * mib, 1u));
  *static_cast<char*>(m) = 1;
  struct {
    int type, device;
    void *on_device, *on_host;
    long reserved[8];
  } a{};
  for (void* const address : {p, m, static_cast<void*>(&a), static_cast<void*>(allocate(1))}) {
    call("cudaPointerGetAttributes", &a, static_cast<const void*>(address));
    print(a.type);
  }
  print(call("cudaFreeHost", p));
  print(call("cudaFree", m));
}

void pinned_pages() {  // what cards take to map memory that the process pins
  constexpr std::size_t gib = 1024 * mib;
  void *p = nullptr, *q = nullptr;
  allocate(1);  // a context on the first card
  const long long free_before = free_mib();
  const auto taken = [&] { return free_before - free_mib(); };
  call("cudaHostAlloc", &p, 256 * mib, 0u);
  print(taken());
  call("cudaHostAlloc", &q, 3 * gib, 0u);
  print(taken());
  call("cudaSetDevice", 1);
  print(free_mib());
  allocate(1);
  print(free_mib());  // a page of 2 MiB for the byte, and the same tables
  call("cudaFreeHost", q);
  print(free_mib());
  call("cudaSetDevice", 0);
  print(taken());
  call("cudaHostRegister", static_cast<void*>(p), gib, 0u);
  print(taken());
}

void beside() {  // what handles and streams take of the card
  const long long free_before = free_mib();
  const auto taken = [&] { return free_before - free_mib(); };
  void* handle = nullptr;
  for (const char* function : {"cublasCreate_v2", "cublasCreate_v2", "cusolverDnCreate", "cusolverDnCreate", "cufftCreate"}) {
    call(function, &handle);
    print(taken());
  }
  for (int i = 0; i < 128; ++i) call("cudaStreamCreateWithPriority", &handle, 0u, 0);
  print(taken());
}

}  // namespace

const Words memory_words = {
    {"memory", memory}, {"values", values}, {"pieces", pieces}, {"pool", pool}, {"host", host}, {"pinned_pages", pinned_pages},
    {"beside", beside},
};
