// Codes of moments on a GPU, four in a word, with the bits of moments.h in about half the instructions: integers limit a pass over 8 bits.
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

}  // namespace headroom::adamw
