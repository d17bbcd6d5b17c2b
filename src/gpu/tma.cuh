// tma.cuh — the bulk copy engine: tensor maps, barriers that count bytes, loads, stores, reductions.
// One thread issues a load; threads that wait on its barrier may then read the tile. A store reads shared memory through
// another proxy: every writing thread calls proxy_fence(), then a barrier, then one thread stores.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "gpu/map.h"

namespace headroom {

// ---- device: barriers --------------------------------------------------------------------------------------------
__device__ inline std::uint32_t shared_address(const void* p) { return __cvta_generic_to_shared(p); }

// Opens when `arrivals` threads have arrived and all announced bytes have landed. Phases alternate 0, 1, 0, …:
// wait(p) returns once the phase with parity p is over, so wait(1) on a fresh barrier returns at once.
struct Barrier {
  std::uint64_t word;
  __device__ void init(int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals)); }
  __device__ void arrive() { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory"); }
  __device__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes) : "memory");
  }
  // Arrives at the same barrier of block `rank` of the cluster. For threads that only read: it makes no writes visible there.
  __device__ void arrive_in(int rank) {
    asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(
                     shared_address(this)),
                 "r"(rank)
                 : "memory");
  }
  static constexpr int sleep_at_most_ns = 10'000'000;  // without it a waiting thread polls every 200 cycles and takes issue slots
  __device__ void wait(int parity) {
    std::uint32_t done = 0;
    while (!done)
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3; selp.u32 %0, 1, 0, p;}"
                   : "=r"(done)
                   : "r"(shared_address(this)), "r"(parity), "n"(sleep_at_most_ns)
                   : "memory");
  }
  // Polls without sleeping: for short waits on the critical path, where sleeping costs more (backward at head dim 64: 7 %, H200, 2026-11-21).
  __device__ void wait_awake(int parity) {
    std::uint32_t done = 0;
    while (!done)
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                   : "=r"(done)
                   : "r"(shared_address(this)), "r"(parity)
                   : "memory");
  }
};
__device__ inline void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }  // then __syncthreads
__device__ inline void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void proxy_fence_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

template <int stages>
struct Turn {  // position in a ring of stages; starts at stage 0, parity 0
  int stage = 0, parity = 0;
  __device__ void next() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Barriers by number, 1–15 (0 is __syncthreads), among `threads` threads. arrive() does not wait.
__device__ inline void meet(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ inline void arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

__device__ inline bool elected() {  // true for one lane of a converged warp
  std::uint32_t chosen;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(chosen));
  return chosen;
}

// ---- device: clusters --------------------------------------------------------------------------------------------
// Barrier of all threads of the cluster that have not exited; each then sees the others' earlier writes to shared memory.
__device__ inline void cluster_meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline void cluster_meet_reading() {  // the same for threads that only read: it makes no writes visible
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// The value at `here` in the shared memory of block `rank` of the cluster.
__device__ inline std::uint32_t shared_address_in(const void* here, int rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(here)), "r"(rank));
  return there;
}
__device__ inline float read_from(const float* here, int rank) {
  float x;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(shared_address_in(here, rank)));
  return x;
}
__device__ inline float4 read_from(const float4* here, int rank) {
  float4 x;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(shared_address_in(here, rank)));
  return x;
}

// ---- device: copies ----------------------------------------------------------------------------------------------
__device__ inline void prefetch(const Map& m) { asm volatile("prefetch.tensormap [%0];" ::"l"(&m.raw) : "memory"); }

enum class CachePolicy : std::uint64_t {
  normal = 0x1000000000000000,
  once = 0x12F0000000000000,
  long_time = 0x14F0000000000000
};  // L2 cache policy words

template <class... At>  // one coordinate per dimension, contiguous one first
__device__ inline void load(void* to, const Map& m, Barrier& full, CachePolicy keep, At... at) {
  static_assert(sizeof...(at) >= 2 && sizeof...(at) <= 5);
  const int c[5] = {at...};
  if constexpr (sizeof...(at) == 2)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3,%4}], [%2], %5;" ::"r"(
            shared_address(to)),
        "l"(&m.raw), "r"(shared_address(&full)), "r"(c[0]), "r"(c[1]), "l"(std::uint64_t(keep))
        : "memory");
  else if constexpr (sizeof...(at) == 3)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3,%4,%5}], [%2], %6;" ::
            "r"(shared_address(to)),
        "l"(&m.raw), "r"(shared_address(&full)), "r"(c[0]), "r"(c[1]), "r"(c[2]), "l"(std::uint64_t(keep))
        : "memory");
  else if constexpr (sizeof...(at) == 4)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3,%4,%5,%6}], [%2], %7;" ::
            "r"(shared_address(to)),
        "l"(&m.raw), "r"(shared_address(&full)), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "l"(std::uint64_t(keep))
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3,%4,%5,%6,%7}], [%2], "
        "%8;" ::"r"(shared_address(to)),
        "l"(&m.raw), "r"(shared_address(&full)), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]), "l"(std::uint64_t(keep))
        : "memory");
}

// The same for every block of the cluster whose bit is set in `blocks`: to the same address in each, counted by its own barrier.
__device__ inline void load_in_all(void* to, const Map& m, Barrier& full, CachePolicy keep, std::uint16_t blocks, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, "
      "{%3,%4,%5}], [%2], %6, %7;" ::"r"(shared_address(to)),
      "l"(&m.raw), "r"(shared_address(&full)), "r"(x), "r"(y), "r"(z), "h"(blocks), "l"(std::uint64_t(keep))
      : "memory");
}

template <class... At>
__device__ inline void store(const Map& m, const void* from, At... at) {
  static_assert(sizeof...(at) >= 2 && sizeof...(at) <= 4);
  const int c[4] = {at...};
  if constexpr (sizeof...(at) == 2)
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2,%3}], [%1];" ::"l"(&m.raw), "r"(shared_address(from)),
                 "r"(c[0]), "r"(c[1])
                 : "memory");
  else if constexpr (sizeof...(at) == 3)
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2,%3,%4}], [%1];" ::"l"(&m.raw), "r"(shared_address(from)),
                 "r"(c[0]), "r"(c[1]), "r"(c[2])
                 : "memory");
  else
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2,%3,%4,%5}], [%1];" ::"l"(&m.raw),
                 "r"(shared_address(from)), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3])
                 : "memory");
}

// Contiguous bytes; both addresses 16-byte aligned, bytes % 16 == 0.
__device__ inline void load_run(void* to, const void* from, int bytes, Barrier& full) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(&full))
               : "memory");
}
__device__ inline void store_run(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
}

// to[0 … bytes/4) += from[…] in fp32, in L2, order between blocks undefined. 16-byte aligned, bytes % 16 == 0.
__device__ inline void add_to(float* to, const float* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int pending>
__device__ inline void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
template <int pending>
__device__ inline void store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace headroom
