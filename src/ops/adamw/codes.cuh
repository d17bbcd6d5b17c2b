// Moments in 8 and 16 bits on a GPU, four or two in a word, with the bits of moments.h in about half the instructions: integers limit what updates
// them.
#pragma once
#include "ops/adamw/moments.h"

namespace headroom::adamw {

__device__ __forceinline__ float4 first_moments(std::uint32_t word, float scale) {
  const auto one = [&](int e) {
    const float size = FirstMoment::Of::value(__byte_perm(word & 0x7f7f7f7f, 0, 0x4440 + e)) * scale;
    return float_of(bits_of(size) | (word << (24 - 8 * e) & 0x80000000u));
  };
  return {one(0), one(1), one(2), one(3)};
}
__device__ __forceinline__ float4 second_moments(std::uint32_t word, float scale) {
  const auto one = [&](int e) { return SecondMoment::Of::value(__byte_perm(word, 0, 0x4440 + e)) * scale; };
  return {one(0), one(1), one(2), one(3)};
}

// Steps::code in an addition, one with a minimum, and a shift.
template <class Steps>
__device__ __forceinline__ std::uint32_t code_of(float x, float inverse, std::uint32_t noise) {
  constexpr std::uint32_t last = ((Steps::most + 1) << Steps::shift) - 1;
  const std::uint32_t bits = bits_of(fmaf(x, inverse, float_of(Steps::first))) + (noise << (Steps::shift - 16));
  return __viaddmin_u32(bits, 0u - Steps::first, last) >> Steps::shift;
}

__device__ __forceinline__ std::uint32_t first_codes(const float4& m, float inverse, const std::uint32_t (&bits)[4]) {
  const auto code = [&](float x, int e) { return code_of<FirstMoment::Of>(fabsf(x), inverse, Noise::first(bits[e])); };
  const auto tops = [](float a, float b) {
    return __byte_perm(bits_of(a), bits_of(b), 0x73);
  };  // their highest bytes, which have the signs
  const std::uint32_t signs = __byte_perm(tops(m.x, m.y), tops(m.z, m.w), 0x5410) & 0x80808080u;
  return (((code(m.w, 3) * 256 + code(m.z, 2)) * 256 + code(m.y, 1)) * 256 + code(m.x, 0)) | signs;
}
__device__ __forceinline__ std::uint32_t second_codes(const float4& v, float inverse, const std::uint32_t (&bits)[4]) {
  const auto code = [&](float x, int e) {  // what is not zero never becomes zero
    return max(code_of<SecondMoment::Of>(x, inverse, Noise::second(bits[e])), std::uint32_t(x > 0));
  };
  return ((code(v.w, 3) * 256 + code(v.z, 2)) * 256 + code(v.y, 1)) * 256 + code(v.x, 0);
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
