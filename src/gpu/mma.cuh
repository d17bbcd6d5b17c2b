// mma.cuh — Hopper's warpgroup matrix instruction (wgmma), its fences, and its register layout.
// With tma.cuh the only PTX of the project. Needs sm_90a. All calls are made by 4 whole warps together (a warpgroup).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "gpu/map.h"

namespace headroom {

// x, which is the same in every lane, told so to the compiler: what is made of it stays in uniform registers, where descriptors are read.
__device__ __forceinline__ int same_in_warp(int x) { return __shfl_sync(~0u, x, 0); }

// ---- operands in shared memory ----------------------------------------------------------------------------------
// A tile is stored as panels: 64 columns (128 bytes) wide, rows one after another, 16-byte chunks swizzled within each
// 8 rows (chunk ^= row % 8). That is what TMA writes with the 128-byte swizzle. Panels start on 1024 bytes.
__host__ __device__ constexpr int panel_bytes(int rows) { return rows * 128; }

enum class Major { k, mn };  // the operand's contiguous dimension: the summed one, or the other one

// The 64-bit operand descriptor:  0–13 start/16 · 16–29 leading offset/16 · 32–45 stride offset/16 · 49–51 base offset (0: 1024-aligned)
// · 62–63 swizzle (1 = 128 B).  Stride offset: from one group of 8 rows to the next, 1024 B in a panel.
// Leading offset: k-major, not used; mn-major, from one 64-wide panel to the next.
__device__ inline std::uint64_t describe(const void* at, int leading_bytes = 16) {
  const std::uint32_t start = __cvta_generic_to_shared(at) & 0x3ffff;  // in a cluster, the bits above say which block
  return std::uint64_t(start >> 4) | std::uint64_t(leading_bytes >> 4) << 16 | std::uint64_t(1024 >> 4) << 32 | 1ull << 62;
}
__device__ inline std::uint64_t step(std::uint64_t descriptor, int bytes) { return descriptor + (bytes >> 4); }

// The operand of the 16-deep step `k16` of a tile whose panels have `rows` rows.
__device__ inline std::uint64_t k_major(std::uint64_t tile, int rows, int k16) {  // summed dimension along the panel
  return step(tile, k16 / 4 * panel_bytes(rows) + k16 % 4 * 32);
}
__device__ inline std::uint64_t mn_major(std::uint64_t tile, int k16) { return step(tile, k16 * 16 * 128); }  // down the panel

// The same words from one 32-bit register: the upper half is constant and the lower one base + offset, so that a loop keeps `base` alone.
__device__ __forceinline__ constexpr int k_offset(int rows, int k16) { return k16 / 4 * panel_bytes(rows) + k16 % 4 * 32; }
__device__ __forceinline__ constexpr int mn_offset(int k16) { return k16 * 16 * 128; }
struct Descriptors {
  std::uint32_t base;  // address of all of a kernel's shared memory / 16
  __device__ __forceinline__ explicit Descriptors(const void* shared)
      : base((std::uint32_t(__cvta_generic_to_shared(shared)) & 0x3ffff) >> 4) {}
  __device__ __forceinline__ void renew() { asm volatile("" : "+r"(base)); }  // values derived from it are recomputed after this line
  __device__ __forceinline__ std::uint64_t at(int offset, int leading_bytes = 16) const {
    std::uint64_t d;
    asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(base + (offset >> 4) + (leading_bytes >> 4 << 16)), "n"(1024 >> 4 | 1 << 30));
    return d;
  }
};

// ---- order ------------------------------------------------------------------------------------------------------
__device__ inline void mma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}  // registers written before → visible to wgmma
__device__ inline void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
__device__ inline void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
template <class T, int n>
__device__ inline void pin(T (&r)[n]) {  // the compiler may not move uses of r across this line
  if constexpr (std::is_same_v<T, float>)
    for (auto& x : r) asm volatile("" : "+f"(x)::"memory");
  else
    for (auto& x : r) asm volatile("" : "+r"(x)::"memory");
}

// ---- d[64, n] = a[64, 16] · b[16, n] (+ d) ------------------------------------------------------------------------
// Thread t of the warpgroup holds rows r = 16·(t/32) + t%32/4 and r + 8, columns c = 8·j + 2·(t%4) and c + 1:
//   d[4j] (r, c)   d[4j+1] (r, c+1)   d[4j+2] (r+8, c)   d[4j+3] (r+8, c+1)
// The A fragment of step k is pack(d[8k], d[8k+1]) … pack(d[8k+6], d[8k+7]) of such an accumulator: no shuffles between
// two chained products.
#define HR_ONES "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9"
#define HR_TEN(t) ",%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define HR_R8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define HR_R16 HR_ONES ",%10,%11,%12,%13,%14,%15"
#define HR_R24 HR_ONES HR_TEN(1) ",%20,%21,%22,%23"
#define HR_R32 HR_ONES HR_TEN(1) HR_TEN(2) ",%30,%31"
#define HR_R40 HR_ONES HR_TEN(1) HR_TEN(2) HR_TEN(3)
#define HR_R48 HR_R40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define HR_R56 HR_R40 HR_TEN(4) ",%50,%51,%52,%53,%54,%55"
#define HR_R64 HR_R40 HR_TEN(4) HR_TEN(5) ",%60,%61,%62,%63"
#define HR_R72 HR_R40 HR_TEN(4) HR_TEN(5) HR_TEN(6) ",%70,%71"
#define HR_R80 HR_R40 HR_TEN(4) HR_TEN(5) HR_TEN(6) HR_TEN(7)
#define HR_R88 HR_R40 HR_TEN(4) HR_TEN(5) HR_TEN(6) HR_TEN(7) ",%80,%81,%82,%83,%84,%85,%86,%87"
#define HR_R96 HR_R40 HR_TEN(4) HR_TEN(5) HR_TEN(6) HR_TEN(7) HR_TEN(8) ",%90,%91,%92,%93,%94,%95"
#define HR_R128 \
  HR_R40 HR_TEN(4) HR_TEN(5) HR_TEN(6) HR_TEN(7) HR_TEN(8) HR_TEN(9) HR_TEN(10) HR_TEN(11) ",%120,%121,%122,%123,%124,%125,%126,%127"
#define HR_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define HR_D32(i) HR_D8(i), HR_D8(i + 8), HR_D8(i + 16), HR_D8(i + 24)

#define HR_SS(N, TYPE, REGS, A, B, C, TA, TB, ...)                                                                                       \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #C                                                                                      \
               ", 0;\n"                                                                                                                  \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REGS "}, %" #A ", %" #B ", p, 1, 1, %" #TA ", %" #TB \
               ";}"                                                                                                                      \
               : __VA_ARGS__                                                                                                             \
               : "l"(a), "l"(b), "r"(int(add)), "n"(int(major_a)), "n"(int(major_b)))
#define HR_RS(N, TYPE, REGS, A0, A1, A2, A3, B, C, TB, ...)                                                                               \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #C                                                                                       \
               ", 0;\n"                                                                                                                   \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REGS "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #B \
               ", p, 1, 1, %" #TB ";}"                                                                                                    \
               : __VA_ARGS__                                                                                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)), "n"(int(major_b)))
#define HR_WGMMA(N, REGS, P0, P1, P2, P3, P4, P5, P6, ...)                                                     \
  template <class T, Major major_a = Major::k, Major major_b = Major::k>                                       \
  __device__ inline void mma(float(&d)[N / 2], std::uint64_t a, std::uint64_t b, bool add = true) {            \
    if constexpr (std::is_same_v<T, __nv_bfloat16>)                                                            \
      HR_SS(N, "bf16", REGS, P0, P1, P2, P3, P4, __VA_ARGS__);                                                 \
    else                                                                                                       \
      HR_SS(N, "f16", REGS, P0, P1, P2, P3, P4, __VA_ARGS__);                                                  \
  }                                                                                                            \
  template <class T, Major major_b = Major::k>                                                                 \
  __device__ inline void mma(float(&d)[N / 2], const std::uint32_t(&a)[4], std::uint64_t b, bool add = true) { \
    if constexpr (std::is_same_v<T, __nv_bfloat16>)                                                            \
      HR_RS(N, "bf16", REGS, P0, P1, P2, P3, P4, P5, P6, __VA_ARGS__);                                         \
    else                                                                                                       \
      HR_RS(N, "f16", REGS, P0, P1, P2, P3, P4, P5, P6, __VA_ARGS__);                                          \
  }
HR_WGMMA(16, HR_R8, 8, 9, 10, 11, 12, 13, 14, HR_D8(0))
HR_WGMMA(32, HR_R16, 16, 17, 18, 19, 20, 21, 22, HR_D8(0), HR_D8(8))
HR_WGMMA(48, HR_R24, 24, 25, 26, 27, 28, 29, 30, HR_D8(0), HR_D8(8), HR_D8(16))
HR_WGMMA(64, HR_R32, 32, 33, 34, 35, 36, 37, 38, HR_D32(0))
HR_WGMMA(80, HR_R40, 40, 41, 42, 43, 44, 45, 46, HR_D32(0), HR_D8(32))
HR_WGMMA(96, HR_R48, 48, 49, 50, 51, 52, 53, 54, HR_D32(0), HR_D8(32), HR_D8(40))
HR_WGMMA(112, HR_R56, 56, 57, 58, 59, 60, 61, 62, HR_D32(0), HR_D8(32), HR_D8(40), HR_D8(48))
HR_WGMMA(128, HR_R64, 64, 65, 66, 67, 68, 69, 70, HR_D32(0), HR_D32(32))
HR_WGMMA(144, HR_R72, 72, 73, 74, 75, 76, 77, 78, HR_D32(0), HR_D32(32), HR_D8(64))
HR_WGMMA(160, HR_R80, 80, 81, 82, 83, 84, 85, 86, HR_D32(0), HR_D32(32), HR_D8(64), HR_D8(72))
HR_WGMMA(176, HR_R88, 88, 89, 90, 91, 92, 93, 94, HR_D32(0), HR_D32(32), HR_D8(64), HR_D8(72), HR_D8(80))
HR_WGMMA(192, HR_R96, 96, 97, 98, 99, 100, 101, 102, HR_D32(0), HR_D32(32), HR_D32(64))
HR_WGMMA(256, HR_R128, 128, 129, 130, 131, 132, 133, 134, HR_D32(0), HR_D32(32), HR_D32(64), HR_D32(96))
#undef HR_WGMMA
#undef HR_RS
#undef HR_SS
#undef HR_D32
#undef HR_D8
#undef HR_R128
#undef HR_R96
#undef HR_R88
#undef HR_R80
#undef HR_R72
#undef HR_R64
#undef HR_R56
#undef HR_R48
#undef HR_R40
#undef HR_R32
#undef HR_R24
#undef HR_R16
#undef HR_R8
#undef HR_TEN
#undef HR_ONES

// ---- registers ----------------------------------------------------------------------------------------------------
template <int n>
__device__ inline void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}
template <int n>
__device__ inline void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

template <class T>
__device__ inline std::uint32_t pack(float low, float high) {
  std::uint32_t r;
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// Four 8x8 blocks of 16-bit values from fragment order to shared memory; lane l gives the address of row l%8 of block l/8.
__device__ inline void store_blocks(void* row, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(std::uint32_t(__cvta_generic_to_shared(row))), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ inline void store_blocks_transposed(void* row, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(std::uint32_t(__cvta_generic_to_shared(row))),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
// transposes a 4 × 4 block within each four lanes: w[i] of lane l and w[l] of lane i change places (`quad` = lane % 4).
__device__ inline void transpose_in_quad(std::uint32_t (&w)[4], int quad) {
  const bool odd = quad & 1, high = quad & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(~0u, odd ? w[i] : w[i + 1], 1);
    if (odd)
      w[i] = got;
    else
      w[i + 1] = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(~0u, high ? w[i] : w[i + 2], 2);
    if (high)
      w[i] = got;
    else
      w[i + 2] = got;
  }
}
// Byte offset of 16-byte chunk `chunk` of row `row` inside a panel.
__device__ inline int swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

__device__ inline float exp2_fast(float x) {  // MUFU: 16 results a cycle and SM; 2 ulp; flushes denormals
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1/x and 1/√x within 1 ulp, denormals as zero (MUFU); also the first step of a correctly rounded division or root.
__device__ inline float reciprocal_near(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float reciprocal_root_near(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace headroom
