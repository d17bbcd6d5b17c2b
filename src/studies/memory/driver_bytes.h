// The driver's memory in use on a card, divided into the context, code and libraries loaded by the run, the arena, and an
// unexplained rest. On a CPU all are 0.
//
// Order of calls: one DriverBytes before anything is allocated; for each arena: before its allocation, after it, after the first run.
#pragma once
#include <cstdint>

#include "gpu/place.h"

namespace headroom::studies {

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
  std::int64_t context() const { return context_; }                               // includes what other programs hold on the card
  std::int64_t loaded() const { return (before_ - context_) + (ran_ - after_); }  // kernels' code, cuBLAS, recorded graphs
  std::int64_t unexplained(std::size_t arena) const { return used() - context_ - loaded() - std::int64_t(arena); }

 private:
  bool gpu_;
  std::int64_t context_, before_ = 0, after_ = 0, ran_ = 0;
};

}  // namespace headroom::studies
