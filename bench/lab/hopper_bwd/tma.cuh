// tma.cuh — the bulk copy engine: tensor maps, barriers that count bytes, loads, stores, reductions.
// A load is asked for by one thread; whoever waits on its barrier may read the tile. A store reads shared memory through
// another proxy: every writing thread calls proxy_fence(), then a barrier, then one thread stores.
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace ns {

// ---- host: how a tensor in global memory is cut into boxes -------------------------------------------------------
// dim[0] is contiguous; stride[i] is in elements; a box reads as zero, and writes nothing, outside the tensor.
// The inner box is 64 16-bit columns (128 bytes): one swizzled panel.
struct Map {
  CUtensorMap raw;
};
struct MapShape {
  int rank;
  std::uint64_t dim[5], stride[5];
  std::uint32_t box[5];
};

template <class T>
Map make_map(const T* data, const MapShape& s) {
  static_assert(std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __half>);
  static const auto encode = [] {  // from the driver that is loaded, so that nothing links against libcuda
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found) != cudaSuccess || !entry)
      throw std::runtime_error("the CUDA driver offers no cuTensorMapEncodeTiled; it must be 12.0 or newer");
    return reinterpret_cast<CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                                         const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                         CUtensorMapL2promotion, CUtensorMapFloatOOBfill)>(entry);
  }();
  cuuint64_t stride_bytes[4];
  for (int i = 1; i < s.rank; ++i) stride_bytes[i - 1] = s.stride[i] * sizeof(T);  // each a multiple of 16, below 2^40
  const cuuint32_t every[5] = {1, 1, 1, 1, 1};
  Map m;
  const CUresult r = encode(&m.raw, std::is_same_v<T, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, s.rank,
                            const_cast<T*>(data), s.dim, stride_bytes, s.box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                            CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) throw std::runtime_error("cuTensorMapEncodeTiled refused a tensor: CUresult " + std::to_string(int(r)));
  return m;
}

// ---- device: barriers --------------------------------------------------------------------------------------------
__device__ __forceinline__ std::uint32_t shared_address(const void* p) { return __cvta_generic_to_shared(p); }

// Opens when `arrivals` threads have arrived and all announced bytes have landed. Phases alternate 0, 1, 0, …:
// wait(p) returns once the phase with parity p is over, so wait(1) on a fresh barrier returns at once.
struct Barrier {
  std::uint64_t word;
  __device__ void init(int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals)); }
  __device__ void arrive() { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory"); }
  __device__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes) : "memory");
  }
  __device__ void wait(int parity) {
    std::uint32_t done = 0;
    while (!done)
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                   : "=r"(done)
                   : "r"(shared_address(this)), "r"(parity)
                   : "memory");
  }
};
__device__ __forceinline__ void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}  // then __syncthreads
__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int stages>
struct Turn {  // where a ring of stages stands; starts at stage 0, parity 0
  int stage = 0, parity = 0;
  __device__ void next() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

// Barriers by number, 1–15 (0 is __syncthreads), among `threads` threads. arrive() does not wait.
__device__ __forceinline__ void meet(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ __forceinline__ void arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

__device__ __forceinline__ bool elected() {  // true for one lane of a converged warp
  std::uint32_t chosen;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(chosen));
  return chosen;
}

// ---- device: copies ----------------------------------------------------------------------------------------------
__device__ __forceinline__ void prefetch(const Map& m) { asm volatile("prefetch.tensormap [%0];" ::"l"(&m.raw) : "memory"); }

enum class Keep : std::uint64_t {
  normal = 0x1000000000000000,
  once = 0x12F0000000000000,
  long_time = 0x14F0000000000000
};  // L2 policy words

template <class... At>  // one coordinate per dimension, contiguous one first
__device__ __forceinline__ void load(void* to, const Map& m, Barrier& full, Keep keep, At... at) {
  static_assert(sizeof...(at) >= 2 && sizeof...(at) <= 4);
  const int c[4] = {at...};
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
  else
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3,%4,%5,%6}], [%2], %7;" ::
            "r"(shared_address(to)),
        "l"(&m.raw), "r"(shared_address(&full)), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "l"(std::uint64_t(keep))
        : "memory");
}

template <class... At>
__device__ __forceinline__ void store(const Map& m, const void* from, At... at) {
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

// A plain run of bytes; both ends 16-byte aligned, bytes % 16 == 0.
__device__ __forceinline__ void load_run(void* to, const void* from, int bytes, Barrier& full) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(&full))
               : "memory");
}
__device__ __forceinline__ void store_run(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
}

// to[0 … bytes/4) += from[…] in fp32, in L2, order between blocks undefined. 16-byte aligned, bytes % 16 == 0.
__device__ __forceinline__ void add_to(float* to, const float* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int pending>
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
template <int pending>
__device__ __forceinline__ void store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace ns
