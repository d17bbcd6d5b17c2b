// Small floats that share a scale per block: MXFP8 and MXFP4 (OCP MX 1.0: 32 values, a power of two) and NVFP4 (16 values,
// an e4m3 scale, and one fp32 scale for the tensor). A value is element × block scale (× tensor scale).
// The same code on CPU and GPU. The last block may be shorter. A NaN or infinity in a block makes its scale NaN.
#pragma once
#include <cstdint>

#include "base/convert.h"

namespace headroom {

struct e8m0 {  // 2^(bits − 127); 255 is NaN
  std::uint8_t bits;
};

HEADROOM_CONVERT float widen(e8m0 x) {
  return float_of(x.bits == 255 ? 0x7fc00000u : x.bits == 0 ? 0x00400000u : std::uint32_t(x.bits) << 23);
}

constexpr int mx_block = 32, nvfp4_block = 16;
constexpr float nvfp4_largest = 448.0f * 6.0f;  // largest e4m3 scale × largest e2m1 element

enum class ScaleRule : std::uint8_t {
  down,  // as in the standard: from the exponent of the largest value; values above the element format's range saturate
  up,    // the smallest power of two with which no value saturates
};

HEADROOM_CONVERT float largest_magnitude(const float* x, int count) {  // NaN if there is one
  std::uint32_t largest = 0;                                           // magnitudes order as their bits do, NaN above infinity
  for (int i = 0; i < count; ++i) {
    const std::uint32_t magnitude = bits_of(x[i]) & 0x7fffffff;
    if (magnitude > largest) largest = magnitude;
  }
  return float_of(largest);
}

template <class T>
HEADROOM_CONVERT e8m0 mx_scale(float largest, ScaleRule rule) {
  using B = Bits<T>;
  constexpr int bias = (1 << (B::exponent - 1)) - 1, top = int(B::max >> B::mantissa) - bias;
  constexpr std::uint32_t top_mantissa = (B::max & ((1u << B::mantissa) - 1)) << (23 - B::mantissa);
  const std::uint32_t u = bits_of(largest);
  if (u >= convert::fp32_infinity) return {255};
  const int exponent = int(u >> 23) - top + (rule == ScaleRule::up && (u & 0x7fffff) > top_mantissa ? 1 : 0);
  return {std::uint8_t(exponent < 0 ? 0 : exponent)};
}

template <class T>
HEADROOM_CONVERT e8m0 mx_encode(const float* x, T* y, int count, ScaleRule rule = ScaleRule::down) {
  const e8m0 scale = mx_scale<T>(largest_magnitude(x, count), rule);
  const float inverse = widen(scale.bits == 255 ? scale : e8m0{std::uint8_t(254 - scale.bits)});  // exact
  for (int i = 0; i < count; ++i) y[i] = narrow_saturating<T>(x[i] * inverse);
  return scale;
}

template <class T>
HEADROOM_CONVERT void mx_decode(const T* x, e8m0 scale, float* y, int count) {
  for (int i = 0; i < count; ++i) y[i] = widen(x[i]) * widen(scale);
}

// Maps the largest value of the tensor to the largest scale times the largest element; 1 for a tensor of zeros.
HEADROOM_CONVERT float nvfp4_tensor_scale(float largest) { return largest == 0 ? 1.0f : largest / nvfp4_largest; }

HEADROOM_CONVERT e4m3 nvfp4_encode(const float* x, e2m1* y, int count, float tensor_scale) {
  const float largest = largest_magnitude(x, count);
  const bool finite = bits_of(largest) < convert::fp32_infinity;
  const e4m3 scale = largest == 0 ? e4m3{0}  // also where the tensor's scale underflowed
                     : finite     ? narrow_saturating<e4m3>(largest / 6.0f / tensor_scale)
                                  : e4m3{Bits<e4m3>::nan};
  const float whole = widen(scale) * tensor_scale;
  for (int i = 0; i < count; ++i) y[i] = whole == 0 ? e2m1{0} : narrow<e2m1>(x[i] / whole);
  return scale;
}

HEADROOM_CONVERT void nvfp4_decode(const e2m1* x, e4m3 scale, float tensor_scale, float* y, int count) {
  for (int i = 0; i < count; ++i) y[i] = widen(x[i]) * (widen(scale) * tensor_scale);
}

// Two FP4 values in a byte, the first in the low half.
HEADROOM_CONVERT std::uint8_t pack(e2m1 first, e2m1 second) { return std::uint8_t(first.bits | second.bits << 4); }
HEADROOM_CONVERT e2m1 first_of(std::uint8_t pair) { return {std::uint8_t(pair & 15)}; }
HEADROOM_CONVERT e2m1 second_of(std::uint8_t pair) { return {std::uint8_t(pair >> 4)}; }

}  // namespace headroom
