// What the driver says is taken on a card, cut into what is known: the context, code and libraries loaded by running, the arena, and a
// rest that nobody accounts for. On a CPU all are 0.
//
// Order of calls: one DriverBytes before anything is allocated; for each arena: before its allocation, after it, after the first run.
#pragma once
#include <cstdint>

#include "gpu/place.h"

namespace headroom {

// What a program takes on a card beside its arena, where it has been measured; else 0. H200, driver for CUDA 13.0, 2026-11-21:
// a context of 552 402 944 bytes and 6 to 13 MB loaded by a step.
inline std::int64_t known_overhead_bytes(const Device& d) { return d.name == "NVIDIA H200" ? 538ll << 20 : 0; }

class DriverBytes {
 public:
  explicit DriverBytes(const Place& place) : gpu_(place.on_gpu()), context_(used()) {}

  void before_arena() { before_ = used(); }
  void after_arena() { after_ = used(); }
  void after_first_run() { ran_ = used(); }

  std::int64_t used() const {
    if (!gpu_) return 0;
    const DeviceMemory m = device_memory();
    return std::int64_t(m.total_bytes - m.free_bytes);
  }
  std::int64_t context() const { return context_; }                               // and what other programs hold on the card
  std::int64_t loaded() const { return (before_ - context_) + (ran_ - after_); }  // kernels' code, cuBLAS, recorded graphs
  std::int64_t unexplained(std::size_t arena) const { return used() - context_ - loaded() - std::int64_t(arena); }

 private:
  bool gpu_;
  std::int64_t context_, before_ = 0, after_ = 0, ran_ = 0;
};

}  // namespace headroom
