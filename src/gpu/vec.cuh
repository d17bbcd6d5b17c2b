// A pack of neighbouring elements: loaded and stored in pieces of up to 16 bytes, computed in FP32. The hardware's
// conversions give the bits of base/convert.h (a NaN stays a NaN; its payload may differ).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "base/convert.h"

namespace headroom {

template <class T, int n>
struct Pack {
  alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) T at[n];
};

template <int n, class T>
__device__ Pack<T, n> load(const T* p) {  // p must have the pack's alignment
  Pack<T, n> x;
  if constexpr (sizeof x >= 16) {
#pragma unroll
    for (int i = 0; i < int(sizeof x / 16); ++i) reinterpret_cast<uint4*>(&x)[i] = reinterpret_cast<const uint4*>(p)[i];
  } else {
    x = *reinterpret_cast<const Pack<T, n>*>(p);
  }
  return x;
}

template <class T, int n>
__device__ void store(T* p, const Pack<T, n>& x) {
  if constexpr (sizeof x >= 16) {
#pragma unroll
    for (int i = 0; i < int(sizeof x / 16); ++i) reinterpret_cast<uint4*>(p)[i] = reinterpret_cast<const uint4*>(&x)[i];
  } else {
    *reinterpret_cast<Pack<T, n>*>(p) = x;
  }
}

__device__ inline float widened(float x) { return x; }
__device__ inline float widened(bf16 x) { return widen(x); }
__device__ inline float widened(f16 x) { return __half2float(__ushort_as_half(x.bits)); }

template <class T>
__device__ T rounded(float x) {
  if constexpr (sizeof(T) == 4)
    return x;
  else if constexpr (Bits<T>::mantissa == 7)
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  else
    return {__half_as_ushort(__float2half_rn(x))};
}

// A pack to FP32 and back. 16-bit types: one 32-bit word, two elements, at a time.
template <class T, int n>
__device__ Pack<float, n> widened(const Pack<T, n>& x) {
  Pack<float, n> y;
  if constexpr (sizeof(T) == 2 && n % 2 == 0) {
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      const std::uint32_t word = reinterpret_cast<const std::uint32_t*>(&x)[i];
      if constexpr (Bits<T>::mantissa == 7) {
        y.at[2 * i] = __uint_as_float(word << 16);
        y.at[2 * i + 1] = __uint_as_float(word & 0xffff0000u);
      } else {
        const float2 two = __half22float2(reinterpret_cast<const __half2&>(word));
        y.at[2 * i] = two.x;
        y.at[2 * i + 1] = two.y;
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i) y.at[i] = widened(x.at[i]);
  }
  return y;
}
template <class T, int n>
__device__ Pack<T, n> rounded(const Pack<float, n>& x) {
  Pack<T, n> y;
  if constexpr (sizeof(T) == 2 && n % 2 == 0) {
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      std::conditional_t<Bits<T>::mantissa == 7, __nv_bfloat162, __half2> two;
      if constexpr (Bits<T>::mantissa == 7)
        two = __floats2bfloat162_rn(x.at[2 * i], x.at[2 * i + 1]);
      else
        two = __floats2half2_rn(x.at[2 * i], x.at[2 * i + 1]);
      reinterpret_cast<std::uint32_t*>(&y)[i] = reinterpret_cast<const std::uint32_t&>(two);
    }
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i) y.at[i] = rounded<T>(x.at[i]);
  }
  return y;
}

// Elements of T in a 16-byte piece if every row of `width` elements begins at a multiple of 16 bytes; else 1.
template <class T, class... Pointers>
int pieces_of(std::int64_t width, const Pointers*... at) {
  const bool aligned = width * std::int64_t(sizeof(T)) % 16 == 0 && ((reinterpret_cast<std::uintptr_t>(at) % 16 == 0) && ...);
  return aligned ? 16 / int(sizeof(T)) : 1;
}

}  // namespace headroom
