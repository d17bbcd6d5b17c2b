// Conversions between fp32 and the small formats. Only this file knows their bits; CPU and GPU run the same code.
//   widen(x)                     exact
//   narrow<T>(x)                 nearest, ties to even; overflow as the format says: infinity, NaN (e4m3), largest (e2m1)
//   narrow_saturating<T>(x)      the same, but overflow and infinity become the largest finite value; NaN stays NaN
//   narrow_stochastic<T>(x, r)   up or down with the probability that keeps the mean; r is 32 uniform random bits
// NaN stays NaN (quiet) in every format that has one; e2m1 has none and takes its largest value, as the hardware does.
#pragma once
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"

#ifdef __CUDACC__
#define HEADROOM_CONVERT __host__ __device__ __forceinline__
#else
#define HEADROOM_CONVERT inline
#endif

namespace headroom {

HEADROOM_CONVERT std::uint32_t bits_of(float x) {
  std::uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}
HEADROOM_CONVERT float float_of(std::uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}

struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};
struct e4m3 {  // OCP FP8 for values: no infinity, one NaN
  std::uint8_t bits;
};
struct e5m2 {  // OCP FP8 for gradients: laid out as IEEE would
  std::uint8_t bits;
};
struct e2m1 {  // FP4, in the low four bits: ±0, ½, 1, 1½, 2, 3, 4, 6
  std::uint8_t bits;
};
struct tf32 {  // the layout of fp32 with the last 13 bits zero
  std::uint32_t bits;
};

// Layout of T: sign, exponent, mantissa. `max`, `infinity` and `nan` are codes without the sign; 0: the format has none.
template <class T>
struct Bits;
template <>
struct Bits<float> {
  using Word = std::uint32_t;
  static constexpr int exponent = 8, mantissa = 23, storage = 32, shift = 0;
  static constexpr std::uint32_t max = 0x7f7fffff, infinity = 0x7f800000, nan = 0x7fc00000;
};
template <>
struct Bits<tf32> {
  using Word = std::uint32_t;
  static constexpr int exponent = 8, mantissa = 10, storage = 32, shift = 13;
  static constexpr std::uint32_t max = 0x3fbff, infinity = 0x3fc00, nan = 0x3fe00;
};
template <>
struct Bits<bf16> {
  using Word = std::uint16_t;
  static constexpr int exponent = 8, mantissa = 7, storage = 16, shift = 0;
  static constexpr std::uint32_t max = 0x7f7f, infinity = 0x7f80, nan = 0x7fc0;
};
template <>
struct Bits<f16> {
  using Word = std::uint16_t;
  static constexpr int exponent = 5, mantissa = 10, storage = 16, shift = 0;
  static constexpr std::uint32_t max = 0x7bff, infinity = 0x7c00, nan = 0x7e00;
};
template <>
struct Bits<e4m3> {
  using Word = std::uint8_t;
  static constexpr int exponent = 4, mantissa = 3, storage = 8, shift = 0;
  static constexpr std::uint32_t max = 0x7e, infinity = 0, nan = 0x7f;
};
template <>
struct Bits<e5m2> {
  using Word = std::uint8_t;
  static constexpr int exponent = 5, mantissa = 2, storage = 8, shift = 0;
  static constexpr std::uint32_t max = 0x7b, infinity = 0x7c, nan = 0x7f;
};
template <>
struct Bits<e2m1> {
  using Word = std::uint8_t;
  static constexpr int exponent = 2, mantissa = 1, storage = 4, shift = 0;
  static constexpr std::uint32_t max = 0x7, infinity = 0, nan = 0;
};

namespace convert {

constexpr std::uint32_t fp32_infinity = 0x7f800000;

struct ToNearestEven {  // significand / 2^drop
  HEADROOM_CONVERT std::uint32_t operator()(std::uint32_t significand, int drop) const {
    const int by = drop < 31 ? drop : 31;  // from 25 on everything is below half of the last place
    return (significand + (1u << (by - 1)) - 1 + (significand >> by & 1)) >> by;
  }
};

struct Stochastic {
  std::uint32_t random;
  HEADROOM_CONVERT std::uint32_t operator()(std::uint32_t significand, int drop) const {
    if (drop > 56) return 0;  // the value is too small for 32 random bits to round it up
    const std::uint64_t noise = drop <= 32 ? random >> (32 - drop) : std::uint64_t(random) << (drop - 32);
    return std::uint32_t((significand + noise) >> drop);
  }
};

// Code of a finite fp32 magnitude in T. Counting last places handles subnormals and the carry into the next binade.
template <class T, class Round>
HEADROOM_CONVERT std::uint32_t code_of(std::uint32_t magnitude, Round round) {
  constexpr int least = 129 - (1 << (Bits<T>::exponent - 1));  // fp32's exponent field at T's smallest normal
  const int field = int(magnitude >> 23), exponent = field ? field : 1;
  const std::uint32_t significand = (magnitude & 0x7fffff) | (field ? 0x800000u : 0u);
  const int above = exponent > least ? exponent - least : 0, below = exponent < least ? least - exponent : 0;
  return (std::uint32_t(above) << Bits<T>::mantissa) + round(significand, 23 - Bits<T>::mantissa + below);
}

template <class T, class Round>
HEADROOM_CONVERT T narrow_by(float x, Round round, bool saturate) {
  using B = Bits<T>;
  constexpr std::uint32_t overflow = B::infinity ? B::infinity : B::nan ? B::nan : B::max;
  const std::uint32_t u = bits_of(x), sign = u >> 31, magnitude = u & 0x7fffffff;
  if (magnitude > fp32_infinity) {
    const std::uint32_t quiet = B::nan ? sign << (B::exponent + B::mantissa) | B::nan : B::max;
    return {typename B::Word(quiet << B::shift)};
  }
  std::uint32_t code = magnitude == fp32_infinity ? ~0u : code_of<T>(magnitude, round);
  if (code > B::max) code = saturate ? B::max : overflow;
  return {typename B::Word((sign << (B::exponent + B::mantissa) | code) << B::shift)};
}

template <class T>
HEADROOM_CONVERT float widen_small(T x) {  // formats of at most 8 bits
  using B = Bits<T>;
  constexpr int bias = (1 << (B::exponent - 1)) - 1, sign_at = B::exponent + B::mantissa;
  const std::uint32_t sign = std::uint32_t(x.bits >> sign_at & 1) << 31, code = x.bits & ((1u << sign_at) - 1);
  if (code > B::max) return float_of(sign | (code == B::infinity ? fp32_infinity : 0x7fc00000));
  if (code < (1u << B::mantissa)) return float_of(sign | bits_of(float(code) * float_of((128u - bias - B::mantissa) << 23)));
  return float_of(sign | ((code << (23 - B::mantissa)) + ((127u - bias) << 23)));
}

}  // namespace convert

HEADROOM_CONVERT float widen(float x) { return x; }
HEADROOM_CONVERT float widen(tf32 x) { return float_of(x.bits); }
HEADROOM_CONVERT float widen(bf16 x) { return float_of(std::uint32_t(x.bits) << 16); }
HEADROOM_CONVERT float widen(f16 x) {
  const std::uint32_t sign = std::uint32_t(x.bits & 0x8000) << 16, magnitude = x.bits & 0x7fff;
  if (magnitude >= 0x7c00) return float_of(sign | 0x7f800000 | (magnitude & 0x3ff) << 13 | ((magnitude & 0x3ff) ? 0x400000 : 0));
  if (magnitude < 0x400) return float_of(sign | bits_of(float(magnitude) * 0x1p-24f));  // subnormal: exact in fp32
  return float_of(sign | ((magnitude << 13) + (112u << 23)));
}
HEADROOM_CONVERT float widen(e4m3 x) { return convert::widen_small(x); }
HEADROOM_CONVERT float widen(e5m2 x) { return convert::widen_small(x); }
HEADROOM_CONVERT float widen(e2m1 x) { return convert::widen_small(x); }

template <class T>
HEADROOM_CONVERT T narrow(float x) {
  return convert::narrow_by<T>(x, convert::ToNearestEven{}, false);
}
template <>
HEADROOM_CONVERT float narrow<float>(float x) {
  return x;
}
// bf16 and fp16 have their own code because every op's inner loop uses it; tests compare it with the general code.
template <>
HEADROOM_CONVERT bf16 narrow<bf16>(float x) {
  const std::uint32_t u = bits_of(x);
  if ((u & 0x7fffffff) > 0x7f800000) return {std::uint16_t(u >> 16 | 0x40)};
  return {std::uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
template <>
HEADROOM_CONVERT f16 narrow<f16>(float x) {
  const std::uint32_t u = bits_of(x), magnitude = u & 0x7fffffff;
  const auto sign = std::uint16_t(u >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return {std::uint16_t(sign | 0x7e00 | (magnitude >> 13 & 0x3ff))};
  if (magnitude >= 0x477ff000) return {std::uint16_t(sign | 0x7c00)};  // 65520 and above round to infinity
  if (magnitude < 0x38800000)  // below 2⁻¹⁴: adding ½ puts the subnormal's ulp at fp32's last bit, and the FPU rounds
    return {std::uint16_t(sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f)))};
  return {std::uint16_t(sign | ((magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23)) >> 13))};
}

template <class T>
HEADROOM_CONVERT T narrow_saturating(float x) {
  return convert::narrow_by<T>(x, convert::ToNearestEven{}, true);
}

template <>
HEADROOM_CONVERT float narrow_saturating<float>(float x) {
  const std::uint32_t u = bits_of(x);
  return (u & 0x7fffffff) == convert::fp32_infinity ? float_of((u & 0x80000000) | Bits<float>::max) : x;
}

template <class T>
HEADROOM_CONVERT T narrow_stochastic(float x, std::uint32_t random) {
  return convert::narrow_by<T>(x, convert::Stochastic{random}, false);
}
template <>
HEADROOM_CONVERT float narrow_stochastic<float>(float x, std::uint32_t) {
  return x;
}

HEADROOM_CONVERT float round_to_tf32(float x) { return widen(narrow<tf32>(x)); }

inline double load_element(const void* data, DType t, std::int64_t at) {
  switch (t) {
    case DType::f64: return static_cast<const double*>(data)[at];
    case DType::f32: return static_cast<const float*>(data)[at];
    case DType::bf16: return widen(static_cast<const bf16*>(data)[at]);
    case DType::f16: return widen(static_cast<const f16*>(data)[at]);
    case DType::e4m3: return widen(static_cast<const e4m3*>(data)[at]);
    case DType::e5m2: return widen(static_cast<const e5m2*>(data)[at]);
    default: throw Error(Code::unsupported, fmt::format("reading {} elements is not supported here", name_of(t)));
  }
}

// Calls f with a value of the storage type: with_float(dtype, [&]<class T>() { … }).
template <class F>
decltype(auto) with_float(DType t, F&& f) {
  switch (t) {
    case DType::f32: return f.template operator()<float>();
    case DType::bf16: return f.template operator()<bf16>();
    case DType::f16: return f.template operator()<f16>();
    default: throw Error(Code::unsupported, fmt::format("{} is not served here", name_of(t)));
  }
}

}  // namespace headroom
