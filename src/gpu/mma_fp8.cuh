// mma_fp8.cuh — wgmma of E4M3 by E4M3, or from shared memory by E5M2: d[64, n] = a[64, 32] · b[32, n] (+ d). Fences, waits and the accumulator's layout: mma.cuh.
//
// Both operands are k-major, the unit takes no others. 32 numbers of 8 bits are as wide as 16 of 16, so panels and their steps are mma.cuh's.
// The A fragment of a step holds, of rows r and r + 8, four numbers from 4·(t%4) on in registers 0 and 1 and the same of the next 16 in 2 and 3.
#pragma once
#include <cuda_fp8.h>

#include "gpu/mma.cuh"

namespace headroom {

// An operand without a swizzle: bricks of 8 rows of 16 bytes, one after another along the rows; `leading_bytes` to the next 16 bytes of the summed dimension.
__device__ inline std::uint64_t describe_bricks(const void* at, int leading_bytes) {
  const std::uint32_t start = __cvta_generic_to_shared(at) & 0x3ffff;
  return std::uint64_t(start >> 4) | std::uint64_t(leading_bytes >> 4) << 16 | std::uint64_t(128 >> 4) << 32;
}

#define HR8_TEN(t) ",%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define HR8_R30 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9" HR8_TEN(1) HR8_TEN(2)
#define HR8_R60 HR8_R30 HR8_TEN(3) HR8_TEN(4) HR8_TEN(5)
#define HR8_R90 HR8_R60 HR8_TEN(6) HR8_TEN(7) HR8_TEN(8)
#define HR8_R32 HR8_R30 ",%30,%31"
#define HR8_R48 HR8_R30 HR8_TEN(3) ",%40,%41,%42,%43,%44,%45,%46,%47"
#define HR8_R64 HR8_R60 ",%60,%61,%62,%63"
#define HR8_R80 HR8_R60 HR8_TEN(6) HR8_TEN(7)
#define HR8_R96 HR8_R90 ",%90,%91,%92,%93,%94,%95"
#define HR8_R112 HR8_R90 HR8_TEN(9) HR8_TEN(10) ",%110,%111"
#define HR8_R128 HR8_R90 HR8_TEN(9) HR8_TEN(10) HR8_TEN(11) ",%120,%121,%122,%123,%124,%125,%126,%127"
#define HR8_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define HR8_D16(i) HR8_D8(i), HR8_D8(i + 8)
#define HR8_D32(i) HR8_D16(i), HR8_D16(i + 16)
#define HR8_SS(N, B, REGS, P0, P1, P2, ...)                                                                          \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #P2                                                                 \
               ", 0;\n"                                                                                              \
               "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3." B " {" REGS "}, %" #P0 ", %" #P1 ", p, 1, 1;}" \
               : __VA_ARGS__                                                                                         \
               : "l"(a), "l"(b), "r"(int(add)))
#define HR8_WGMMA(N, REGS, P0, P1, P2, P3, P4, P5, ...)                                                                              \
  template <class B = __nv_fp8_e4m3>                                                                                                 \
  __device__ inline void mma_e4m3(float(&d)[N / 2], std::uint64_t a, std::uint64_t b, bool add = true) {                             \
    if constexpr (std::is_same_v<B, __nv_fp8_e4m3>)                                                                                  \
      HR8_SS(N, "e4m3", REGS, P0, P1, P2, __VA_ARGS__);                                                                              \
    else                                                                                                                             \
      HR8_SS(N, "e5m2", REGS, P0, P1, P2, __VA_ARGS__);                                                                              \
  }                                                                                                                                  \
  __device__ inline void mma_e4m3(float(&d)[N / 2], const std::uint32_t(&a)[4], std::uint64_t b, bool add = true) {                  \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #P5                                                                               \
                 ", 0;\n"                                                                                                            \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" REGS "}, {%" #P0 ",%" #P1 ",%" #P2 ",%" #P3 "}, %" #P4 \
                 ", p, 1, 1;}"                                                                                                       \
                 : __VA_ARGS__                                                                                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));                                               \
  }
HR8_WGMMA(64, HR8_R32, 32, 33, 34, 35, 36, 37, HR8_D32(0))
HR8_WGMMA(96, HR8_R48, 48, 49, 50, 51, 52, 53, HR8_D32(0), HR8_D16(32))
HR8_WGMMA(128, HR8_R64, 64, 65, 66, 67, 68, 69, HR8_D32(0), HR8_D32(32))
HR8_WGMMA(160, HR8_R80, 80, 81, 82, 83, 84, 85, HR8_D32(0), HR8_D32(32), HR8_D16(64))
HR8_WGMMA(192, HR8_R96, 96, 97, 98, 99, 100, 101, HR8_D32(0), HR8_D32(32), HR8_D32(64))
HR8_WGMMA(224, HR8_R112, 112, 113, 114, 115, 116, 117, HR8_D32(0), HR8_D32(32), HR8_D32(64), HR8_D16(96))
HR8_WGMMA(256, HR8_R128, 128, 129, 130, 131, 132, 133, HR8_D32(0), HR8_D32(32), HR8_D32(64), HR8_D32(96))
#undef HR8_WGMMA
#undef HR8_SS
#undef HR8_D32
#undef HR8_D16
#undef HR8_D8
#undef HR8_R128
#undef HR8_R112
#undef HR8_R96
#undef HR8_R80
#undef HR8_R64
#undef HR8_R48
#undef HR8_R32
#undef HR8_R90
#undef HR8_R60
#undef HR8_R30
#undef HR8_TEN

// Four numbers to E4M3, the first one lowest: nearest, ties to even; what overflows becomes 448, NaN stays NaN.
__device__ inline std::uint32_t pack_e4m3(float a, float b, float c, float d) {
  std::uint32_t r;
  asm("{.reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high};}"
      : "=r"(r)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return r;
}

}  // namespace headroom
