// One number into 8 bits, and the scale of those that share it. The same code for every backend.
//   scale    largest / (the format's largest), FP32, at least 2⁻¹²⁶, so that its inverse is finite; 1 where nothing is above 0
//   number   x · (1 / scale), nearest, ties to even; what overflows, infinity too, becomes the largest finite number; NaN stays NaN
// The largest is taken over finite numbers: one infinity does not flush the others to zero.
#pragma once
#include "base/convert.h"

namespace headroom::quantise {

HEADROOM_CONVERT std::uint32_t finite_magnitude(float x) {  // bits that order as the magnitudes do; 0 for NaN and infinity
  const std::uint32_t magnitude = bits_of(x) & 0x7fffffff;
  return magnitude < convert::fp32_infinity ? magnitude : 0;
}

template <class T>
HEADROOM_CONVERT float scale_of(std::uint32_t largest) {
  if (largest == 0) return 1;
  const float scale = float_of(largest) / widen(T{std::uint8_t(Bits<T>::max)});
  return scale < 0x1p-126f ? 0x1p-126f : scale;
}

struct Encoded {
  std::uint8_t bits;
  bool clipped, flushed, nan;
};

// narrow_saturating<T>(x · inverse) without branches (a test compares them), and what that did to x. The sign is x's: a card's product of a NaN
// has none.
template <class T>
HEADROOM_CONVERT Encoded encode(float x, float inverse) {
  using B = Bits<T>;
  constexpr int drop = 23 - B::mantissa, bias = (1 << (B::exponent - 1)) - 1;
  constexpr std::uint32_t least = std::uint32_t(128 - bias) << 23;                     // FP32's bits of T's smallest normal number
  constexpr std::uint32_t magic = std::uint32_t(127 + 24 - bias - B::mantissa) << 23;  // its last place is T's smallest number
  const std::uint32_t u = bits_of(x * inverse), magnitude = u & 0x7fffffff;
  const std::uint32_t normal =
      ((magnitude + ((1u << (drop - 1)) - 1) + (magnitude >> drop & 1)) >> drop) - (std::uint32_t(127 - bias) << B::mantissa);
  const std::uint32_t small = bits_of(float_of(magnitude < least ? magnitude : 0) + float_of(magic)) - magic;  // the FPU rounds
  const std::uint32_t rounded = magnitude < least ? small : normal;
  const bool nan = magnitude > convert::fp32_infinity, over = rounded > B::max;
  const std::uint32_t code = nan ? B::nan : over ? B::max : rounded;
  return {std::uint8_t(code | (bits_of(x) >> 24 & 0x80)), over && !nan, x != 0 && rounded == 0, nan};
}

}  // namespace headroom::quantise
