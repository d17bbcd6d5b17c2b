// A number in global memory by which blocks tell each other that what they wrote before is there.
#pragma once

namespace headroom {

__device__ __forceinline__ int read_acquire(const int* p) {
  int x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
__device__ __forceinline__ void store_release(int* p, int x) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
__device__ __forceinline__ void add_release(int* p, int x) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

}  // namespace headroom
