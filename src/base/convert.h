// Conversions between fp32 and the small formats, round to nearest, ties to even: the one place that knows their bits.
// The same code on CPU and GPU. NaN stays NaN (quiet), infinities and overflow as each format defines them.
#pragma once
#include <bit>
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

HEADROOM_CONVERT float widen(float x) { return x; }
HEADROOM_CONVERT float widen(bf16 x) { return float_of(std::uint32_t(x.bits) << 16); }
HEADROOM_CONVERT float widen(f16 x) {
  const std::uint32_t sign = std::uint32_t(x.bits & 0x8000) << 16, magnitude = x.bits & 0x7fff;
  if (magnitude >= 0x7c00) return float_of(sign | 0x7f800000 | (magnitude & 0x3ff) << 13 | ((magnitude & 0x3ff) ? 0x400000 : 0));
  if (magnitude < 0x400) return float_of(sign | bits_of(float(magnitude) * 0x1p-24f));  // subnormal: exact in fp32
  return float_of(sign | ((magnitude << 13) + (112u << 23)));
}

template <class T>
HEADROOM_CONVERT T narrow(float x);

template <>
HEADROOM_CONVERT float narrow<float>(float x) {
  return x;
}
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

inline double load_element(const void* data, DType t, std::int64_t at) {
  switch (t) {
    case DType::f64: return static_cast<const double*>(data)[at];
    case DType::f32: return static_cast<const float*>(data)[at];
    case DType::bf16: return widen(static_cast<const bf16*>(data)[at]);
    case DType::f16: return widen(static_cast<const f16*>(data)[at]);
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
