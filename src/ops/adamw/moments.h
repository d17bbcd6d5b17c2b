// Moments that are not FP32, and the arithmetic of their update: the same code on CPU and GPU, every operation exact or rounded once as IEEE
// says, so both give the same bits. In 16 bits: bf16. In 8 bits: codes (Steps) of |x| over an FP32 scale, one scale for moments_block
// elements. Both are rounded stochastically: a decay of 5 % is below half a step of 8 bits, and must not be lost.
//
// Random bits depend on the seed, the number of the update, the parameter's number and the element's number in it, on nothing else.
#pragma once
#include <bit>
#include <cmath>

#include "base/convert.h"
#include "ops/adamw/impl.h"

namespace headroom::adamw {

// Codes of 0 to about 1 whose steps grow with the value: 2^mantissa equal steps in every octave above b = 2^-octaves, and as many from 0 to
// b. Code 0 is zero. docs/numerics.md compares the choices. They are made and read an octave higher, of half a scale: there b's bits and a code's are apart.
template <int bits, int mantissa>
struct Steps {
  static constexpr int shift = 23 - mantissa, octaves = 1 << (bits - mantissa);
  static constexpr std::uint32_t first = std::uint32_t(128 - octaves) << 23, most = (1u << bits) - 1;  // first: the bits of 2b
  static_assert((first & (most << shift)) == 0);
  static constexpr float top =
      (std::bit_cast<float>(first | most << shift) - std::bit_cast<float>(first)) * 0.5f;  // the largest code's value

  HEADROOM_CONVERT static float value(std::uint32_t code, float scale) {
    const float half = scale * 0.5f;
    return std::fma(float_of(first | code << shift), half, -(float_of(first) * half));
  }
  // x ≥ 0, of a scale whose half has this inverse. noise: 16 random bits; half of them all rounds to the nearest.
  HEADROOM_CONVERT static std::uint32_t code(float x, float inverse, std::uint32_t noise) {
    const std::uint32_t c = (bits_of(std::fma(x, inverse, float_of(first))) + (noise << (shift - 16)) - first) >> shift;
    return c < most ? c : most;
  }
  HEADROOM_CONVERT static float scale(float largest) {  // a block's scale; NaN stays NaN, and the least has a half that is a normal number
    const float s = largest * (1 / top);
    return s < 0x1p-125f ? 0x1p-125f : s;
  }
};
HEADROOM_CONVERT float inverse_of(float scale) { return 1 / (scale * 0.5f); }

struct FirstMoment {  // a sign and 7 bits
  using Of = Steps<7, 3>;
  HEADROOM_CONVERT static float value(std::uint8_t code, float scale) {
    return float_of(bits_of(Of::value(code & 0x7f, scale)) | std::uint32_t(code & 0x80) << 24);
  }
  HEADROOM_CONVERT static std::uint8_t code(float x, float inverse, std::uint32_t noise) {
    return std::uint8_t(Of::code(float_of(bits_of(x) & 0x7fffffff), inverse, noise) | (bits_of(x) >> 24 & 0x80));
  }
};
struct SecondMoment {  // 8 bits; none becomes zero, because the step is divided by its root
  using Of = Steps<8, 3>;
  HEADROOM_CONVERT static float value(std::uint8_t code, float scale) { return Of::value(code, scale); }
  HEADROOM_CONVERT static std::uint8_t code(float x, float inverse, std::uint32_t noise) {
    const std::uint32_t c = Of::code(x, inverse, noise);
    return std::uint8_t(c > 1 ? c : 1);
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

// The random bits of a parameter's elements: of eight neighbours, the states of a multiplicative generator (the multiplier is G. Steele's and S. Vigna's)
// that begins at a hash of their number.
struct Noise {
  static constexpr int run = 8;
  static constexpr std::uint32_t multiplier = 0x93d765ddu;
  std::uint32_t key;
  HEADROOM_CONVERT Noise(const Numbers& k, std::uint32_t parameter) : key(scrambled(k.random ^ scrambled(parameter * 0x9e3779b9u))) {}
  // The bits of the eight neighbours that begin at a multiple of eight, or of the four that begin at a multiple of four.
  template <int many>
  HEADROOM_CONVERT void of_neighbours(std::int64_t element, std::uint32_t (&bits)[many]) const {
    static_assert(many == run || 2 * many == run);
    const std::int64_t number = element / run;
    bits[0] = scrambled(std::uint32_t(number) + std::uint32_t(number >> 32) * 0x9e3779b9u + key);
    if (many < run && element % run != 0) bits[0] *= multiplier * multiplier * multiplier * multiplier;
    for (int e = 1; e < many; ++e) bits[e] = bits[e - 1] * multiplier;
  }
  HEADROOM_CONVERT static std::uint32_t first(std::uint32_t bits) { return bits >> 16; }  // the first moment's bits; the second's follow
  HEADROOM_CONVERT static std::uint32_t second(std::uint32_t bits) { return bits >> 4 & 0xffff; }
};

// The step, with every sum of a product and a number rounded once, on every machine. What is added under the root keeps what is divided by a normal number.
constexpr float least_square = 0x1p-100f;
HEADROOM_CONVERT void follow_fused(const Numbers& k, float g, float& m, float& v) {
  const float x = g * k.factor;
  m = std::fma(k.beta1, m, k.rest1 * x);
  v = std::fma(k.beta2, v, k.rest2 * x * x);
}
HEADROOM_CONVERT float stepped_fused(const Numbers& k, float keep, float w, float m, float v) {
  const float divisor = std::fma(std::sqrt(v + least_square), k.root2, k.eps);
  return std::fma(keep, w, -(k.step * m * (1 / divisor)));
}

}  // namespace headroom::adamw
