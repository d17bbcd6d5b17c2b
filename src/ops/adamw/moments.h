// Moments that are not FP32, and the arithmetic of their update: the same code on CPU and GPU, every operation exact or rounded once as IEEE
// says, so both give the same bits. In 16 bits: bf16. In 8 bits: codes (Steps) of |x| over an FP32 scale, one scale for moments_block
// elements. Both are rounded stochastically: a decay of 5 % is below half a step of 8 bits, and must not be lost.
//
// Random bits depend on the seed, the number of the update, the parameter's number and the element's number in it, on nothing else.
#pragma once
#include <cmath>

#include "base/convert.h"
#include "ops/adamw/impl.h"

namespace headroom::adamw {

// Codes of 0 to about 1 whose steps grow with the value: 2^mantissa equal steps in every octave above b = 2^-octaves, and as many from 0 to
// b. Code 0 is zero. docs/numerics.md compares the choices.
template <int bits, int mantissa>
struct Steps {
  static constexpr int shift = 23 - mantissa, octaves = 1 << (bits - mantissa);
  static constexpr std::uint32_t first = std::uint32_t(127 - octaves) << 23, most = (1u << bits) - 1;  // first: the bits of b

  HEADROOM_CONVERT static float value(std::uint32_t code) { return float_of(first + (code << shift)) - float_of(first); }
  // x ≥ 0, and x · inverse at most value(most). noise: 16 random bits; half of them all rounds to the nearest.
  HEADROOM_CONVERT static std::uint32_t code(float x, float inverse, std::uint32_t noise) {
    const std::uint32_t c = (bits_of(std::fma(x, inverse, float_of(first))) + (noise << (shift - 16)) - first) >> shift;
    return c < most ? c : most;
  }
  HEADROOM_CONVERT static float scale(float largest) {  // a block's scale; NaN stays NaN, and zero becomes the least number
    const float s = largest * (1 / value(most));
    return s < 0x1p-126f ? 0x1p-126f : s;
  }
};

struct FirstMoment {  // a sign and 7 bits
  using Of = Steps<7, 3>;
  HEADROOM_CONVERT static float value(std::uint8_t code, float scale) {
    return float_of(bits_of(Of::value(code & 0x7f) * scale) | std::uint32_t(code & 0x80) << 24);
  }
  HEADROOM_CONVERT static std::uint8_t code(float x, float inverse, std::uint32_t noise) {
    return std::uint8_t(Of::code(float_of(bits_of(x) & 0x7fffffff), inverse, noise) | (bits_of(x) >> 24 & 0x80));
  }
};
struct SecondMoment {  // 8 bits; what is not zero never becomes zero, because the step is divided by its root
  using Of = Steps<8, 3>;
  HEADROOM_CONVERT static float value(std::uint8_t code, float scale) { return Of::value(code) * scale; }
  HEADROOM_CONVERT static std::uint8_t code(float x, float inverse, std::uint32_t noise) {
    const std::uint32_t c = Of::code(x, inverse, noise);
    return std::uint8_t(c == 0 && x > 0 ? 1 : c);
  }
};

HEADROOM_CONVERT bf16 half_of(float x, std::uint32_t noise) {  // noise: 16 random bits
  const std::uint32_t u = bits_of(x);
  if ((u & 0x7fffffff) > 0x7f800000) return {std::uint16_t(u >> 16 | 0x40)};  // a quiet NaN
  return {std::uint16_t((u + noise) >> 16)};
}

HEADROOM_CONVERT std::uint32_t scrambled(std::uint32_t x) {  // a bijection; C. Wellons' lowbias32
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// The random bits of a run of elements that does not cross a multiple of 2^32.
struct Noise {
  std::uint32_t key;
  HEADROOM_CONVERT Noise(const Numbers& k, std::uint32_t parameter, std::int64_t element)
      : key(scrambled(k.random ^ scrambled(parameter * 0x9e3779b9u + std::uint32_t(element >> 32)))) {}
  HEADROOM_CONVERT std::uint32_t of(std::int64_t element) const { return scrambled(std::uint32_t(element) + key); }
  HEADROOM_CONVERT static std::uint32_t first(std::uint32_t bits) { return bits & 0xffff; }  // of the first moment, and of the second
  HEADROOM_CONVERT static std::uint32_t second(std::uint32_t bits) { return bits >> 16; }
};

// The step, with every sum of a product and a number rounded once, on every machine.
HEADROOM_CONVERT void follow_fused(const Numbers& k, float g, float& m, float& v) {
  const float x = g * k.factor;
  m = std::fma(k.beta1, m, k.rest1 * x);
  v = std::fma(k.beta2, v, k.rest2 * x * x);
}
HEADROOM_CONVERT float stepped_fused(const Numbers& k, float keep, float w, float m, float v) {
  return std::fma(keep, w, -(k.step * m / std::fma(std::sqrt(v), k.root2, k.eps)));
}

}  // namespace headroom::adamw
