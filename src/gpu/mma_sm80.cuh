// mma_sm80.cuh — asynchronous copies, matrix fragments and the warp's matrix instruction (mma.sync): PTX of every card from sm_80 on.
// One whole warp computes a product. bf16 and fp16 are multiplied as stored; float as tf32, rounded to nearest by `round`.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace headroom::warp {

// ---- global to shared memory, in the background ------------------------------------------------------------------------
__device__ __forceinline__ std::uint32_t shared_address(const void* at) { return std::uint32_t(__cvta_generic_to_shared(at)); }
__device__ __forceinline__ void copy_16(std::uint32_t to, const void* from,
                                        bool wanted) {  // 16 bytes; if not wanted: zeros, `from` is not read
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(wanted ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy_16(void* to, const void* from, bool wanted) { copy_16(shared_address(to), from, wanted); }
__device__ __forceinline__ void copy_4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>  // until this thread's copies have landed, all but those of the last `pending` commits
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// ---- fragments -------------------------------------------------------------------------------------------------------
// Lane l holds, with g = l/4 and t = l%4, of C and D[16, 8]: d[0], d[1] = (g, 2t), (g, 2t+1) and d[2], d[3] = those of row g + 8.
// A step of a product is 32 bytes deep: 16 values of 16 bits or 8 of 32.
template <class T>
constexpr int depth = 32 / int(sizeof(T));

// Four 8-row blocks of 16 bytes a row: lane l gives the address of row l%8 of block l/8 and gets 4 bytes of each.
__device__ __forceinline__ void load_blocks(std::uint32_t (&r)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void load_blocks_transposed(std::uint32_t (&r)[4], std::uint32_t row) {  // 16-bit values
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void load_blocks(std::uint32_t (&r)[4], const void* row) { load_blocks(r, shared_address(row)); }
__device__ __forceinline__ void load_blocks_transposed(std::uint32_t (&r)[4], const void* row) {
  load_blocks_transposed(r, shared_address(row));
}
__device__ __forceinline__ std::uint32_t round_bits(std::uint32_t x) {  // fp32 to tf32: nearest, ties away from zero
  std::uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "r"(x));
  return r;
}
template <class T, int n>
__device__ __forceinline__ void round(std::uint32_t (&r)[n]) {  // values that were loaded without conversion
  if constexpr (std::is_same_v<T, float>)
#pragma unroll
    for (auto& x : r) x = round_bits(x);
}

template <class T>
__device__ __forceinline__ std::uint32_t pair(float low, float high) {
  std::uint32_t r;
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// ---- d[16, 8] += a[16, depth] · b[depth, 8] ------------------------------------------------------------------------------
template <class T>
__device__ __forceinline__ void multiply(float* d, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else if constexpr (std::is_same_v<T, __half>)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <class T>  // d = a · b
__device__ __forceinline__ void multiply_first(float* d, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  static_assert(std::is_same_v<T, float>);
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.f));
}

}  // namespace headroom::warp
