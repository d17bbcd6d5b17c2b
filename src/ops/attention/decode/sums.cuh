// Sums of flash_decode on their way between blocks: as words in global memory, and in the shared memory of a cluster.
#pragma once
#include "gpu/mma.cuh"
#include "gpu/mma_sm80.cuh"
#include "ops/attention/decode/decode.h"

namespace headroom::attention::decode {

__device__ __forceinline__ void put(Word* at, const Word& w) {
  asm volatile(
      "{.reg .b64 two; .reg .b128 all; mov.b64 two, {%1, %2}; mov.b128 all, {two, %3}; st.relaxed.gpu.global.b128 [%0], all;}" ::"l"(at),
      "f"(w.x), "f"(w.y), "l"(w.number)
      : "memory");
}
__device__ __forceinline__ Word get(const Word* at) {
  Word w;
  asm volatile("{.reg .b64 two; .reg .b128 all; ld.relaxed.gpu.global.b128 all, [%3]; mov.b128 {two, %2}, all; mov.b64 {%0, %1}, two;}"
               : "=f"(w.x), "=f"(w.y), "=l"(w.number)
               : "l"(at)
               : "memory");
  return w;
}

// This block's place in its cluster, and the cluster's in the grid; the float2 at a place in another block's shared memory; and a barrier of all threads of
// a cluster, each of which then sees the others' earlier writes to shared memory. Cards before sm_90 have no clusters.
__device__ __forceinline__ void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}
__device__ __forceinline__ int rank_in_cluster() {
  int rank = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}
__device__ __forceinline__ int number_of_cluster() {
  int number = int(blockIdx.x);
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(number));
#endif
  return number;
}
__device__ __forceinline__ float2 read_there(const float2* here, int rank) {
  float2 x{};
#if __CUDA_ARCH__ >= 900
  asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %2, %3; ld.shared::cluster.v2.f32 {%0, %1}, [there];}"
               : "=f"(x.x), "=f"(x.y)
               : "r"(warp::shared_address(here)), "r"(rank)
               : "memory");
#endif
  return x;
}

// Two columns of a row, added up from parts that took different maxima as their reference.
struct Sum {
  float maximum = -INFINITY, total = 0, x = 0, y = 0;
  template <int n>
  __device__ __forceinline__ void add(const float2 (&stat)[n], const float2 (&two)[n], float scale_log2) {
    float high = maximum;
#pragma unroll
    for (int i = 0; i < n; ++i) high = fmaxf(high, stat[i].x);
    const float reference = high == -INFINITY ? 0 : high, before = exp2_fast((maximum - reference) * scale_log2);
    total *= before, x *= before, y *= before;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float weight = exp2_fast((stat[i].x - reference) * scale_log2);
      total += weight * stat[i].y, x += weight * two[i].x, y += weight * two[i].y;
    }
    maximum = high;
  }
};

}  // namespace headroom::attention::decode
