// Two numbers into 8 bits at once, by a card's own instruction where it has one.
#pragma once
#include "ops/quantise/encode.h"

namespace headroom::quantise {

// As encode() rounds them; neither is NaN.
template <class E>
__device__ std::uint32_t encode_two(float low, float high) {
#if __CUDA_ARCH__ >= 890
  std::uint16_t two;
  if constexpr (Bits<E>::mantissa == 3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(two) : "f"(low), "f"(high));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %2, %1;" : "=h"(two) : "f"(low), "f"(high));
  return two;
#else
  return encode<E>(low, 1).bits | std::uint32_t(encode<E>(high, 1).bits) << 8;
#endif
}

}  // namespace headroom::quantise
