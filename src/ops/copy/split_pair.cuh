// Two neighbours at once, with the bits of split.h: halves lie in memory two in a word.
#pragma once
#include <cstdint>

namespace headroom::copy {

__device__ __forceinline__ float2 join_pair(std::uint32_t upper, std::uint32_t rest) {
  const int first = static_cast<std::int16_t>(rest), second = int(rest) >> 16;  // a rest of 0x8000 and more was rounded up
  return {__uint_as_float((upper << 16) + first), __uint_as_float((upper & 0xffff0000u) + second)};
}
__device__ __forceinline__ void split_pair(float2 w, std::uint32_t& upper, std::uint32_t& rest) {
  const std::uint32_t first = __float_as_uint(w.x), second = __float_as_uint(w.y);
  upper = __byte_perm(first + 0x8000, second + 0x8000, 0x7632);
  rest = __byte_perm(first, second, 0x5410);
}

}  // namespace headroom::copy
