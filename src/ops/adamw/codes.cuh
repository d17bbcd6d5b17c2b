// Moments in 8 and 16 bits on a GPU, four or two in a word, with the bits of moments.h in few instructions.
#pragma once
#include "ops/adamw/step.cuh"

namespace headroom::adamw {

// The number whose code is a word's byte, which a moment's sign is no part of.
template <class Of>
__device__ __forceinline__ float number(std::uint32_t word, int byte, float half) {
  return fmaf(float_of(__byte_perm(word, 0, 0x4440 + byte) * (1u << Of::shift) + Of::first), half, -(float_of(Of::first) * half));
}
__device__ __forceinline__ float4 first_moments(std::uint32_t word, float scale) {
  const float half = scale * 0.5f;
  const auto one = [&](int e) {
    return float_of(bits_of(number<FirstMoment::Of>(word & 0x7f7f7f7f, e, half)) ^ ((word << (24 - 8 * e)) & 0x80000000u));
  };
  return {one(0), one(1), one(2), one(3)};
}
__device__ __forceinline__ float4 second_moments(std::uint32_t word, float scale) {
  const auto one = [&](int e) { return number<SecondMoment::Of>(word, e, scale * 0.5f); };
  return {one(0), one(1), one(2), one(3)};
}

// The highest bytes of four words in one.
__device__ __forceinline__ std::uint32_t tops(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x73), __byte_perm(c, d, 0x73), 0x5410);
}

// Codes stand in the highest bytes of words until four are one; inverse: of half a scale. Finite numbers alone.
__device__ __forceinline__ std::uint32_t first_codes(const float4& m, float inverse, const std::uint32_t (&bits)[4]) {
  using Of = FirstMoment::Of;
  static_assert(Of::shift == 20 && Of::first << 4 == 0x80000000u);
  const auto code = [&](float x, int e) {
    const std::uint32_t y = bits_of(fmaf(fabsf(x), inverse, float_of(Of::first)));
    const std::uint32_t z = y * 16 + __byte_perm(bits[e], 0, 0x4324);  // Noise::first in bits 8 to 23
    return z ^ ((z ^ bits_of(x)) & 0x80000000u);
  };
  return tops(code(m.x, 0), code(m.y, 1), code(m.z, 2), code(m.w, 3));
}
__device__ __forceinline__ std::uint32_t second_codes(const float4& v, float inverse, const std::uint32_t (&bits)[4]) {
  using Of = SecondMoment::Of;
  static_assert(Of::shift == 20 && Of::first << 4 == 0);
  const auto code = [&](float x, int e) {
    const std::uint32_t y = bits_of(fmaf(x, inverse, float_of(Of::first)));
    return __viaddmax_u32(y, bits[e] & 0xffff0u, Of::first + (1u << Of::shift)) << 4;  // Noise::second in bits 4 to 19
  };
  return tops(code(v.x, 0), code(v.y, 1), code(v.z, 2), code(v.w, 3));
}

// The codes of a lane's fours, of scales that follow from the largest of them.
template <int fours>
__device__ __forceinline__ void encode(const float4 (&m)[fours], const float4 (&v)[fours], const std::uint32_t (&bits)[fours][4],
                                       float m_scale, float v_scale, std::uint32_t (&m_codes)[fours], std::uint32_t (&v_codes)[fours]) {
  if (m_scale < 0x1p120f && v_scale < 0x1p120f) {  // nothing is infinite or NaN
    const float of_m = reciprocal(m_scale * 0.5f), of_v = reciprocal(v_scale * 0.5f);
#pragma unroll
    for (int i = 0; i < fours; ++i) m_codes[i] = first_codes(m[i], of_m, bits[i]), v_codes[i] = second_codes(v[i], of_v, bits[i]);
    return;
  }
  const float of_m = inverse_of(m_scale), of_v = inverse_of(v_scale);
#pragma unroll
  for (int i = 0; i < fours; ++i) {
    m_codes[i] = v_codes[i] = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      m_codes[i] |= std::uint32_t(FirstMoment::code((&m[i].x)[e], of_m, Noise::first(bits[i][e]))) << 8 * e;
      v_codes[i] |= std::uint32_t(SecondMoment::code((&v[i].x)[e], of_v, Noise::second(bits[i][e]))) << 8 * e;
    }
  }
}

// Four moments in 16 bits, two in a word; and back, rounded as half_of does it: numbers that are not NaN, or any.
__device__ __forceinline__ float4 four_of_halves(const uint2& x) {
  return {float_of(x.x << 16), float_of(x.x & 0xffff0000u), float_of(x.y << 16), float_of(x.y & 0xffff0000u)};
}
template <class NoiseOf>
__device__ __forceinline__ uint2 halves_of_numbers(const float4& x, const std::uint32_t (&bits)[4], NoiseOf&& noise) {
  const auto two = [&](float a, float b, int e) {
    return __byte_perm(bits_of(a) + noise(bits[e]), bits_of(b) + noise(bits[e + 1]), 0x7632);
  };
  return {two(x.x, x.y, 0), two(x.z, x.w, 2)};
}
template <class NoiseOf>
__device__ __forceinline__ uint2 halves_of_any(const float4& x, const std::uint32_t (&bits)[4], NoiseOf&& noise) {
  const auto half = [&](float a, int e) { return std::uint32_t(half_of(a, noise(bits[e])).bits); };
  return {half(x.x, 0) | half(x.y, 1) << 16, half(x.z, 2) | half(x.w, 3) << 16};
}

}  // namespace headroom::adamw
