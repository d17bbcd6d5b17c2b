// Properties of a number format, computed from its layout in convert.h: range, precision, bytes with scales.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/block_scale.h"
#include "base/convert.h"

namespace headroom {

struct FloatFormat {
  std::string_view name;
  int exponent_bits = 0, mantissa_bits = 0, storage_bits = 0;
  std::uint32_t max_code = 0;
  bool has_infinity = false, has_nan = false;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  double max() const {
    const int mantissa = int(max_code & ((1u << mantissa_bits) - 1)), exponent = int(max_code >> mantissa_bits);
    return std::ldexp(1.0 + std::ldexp(mantissa, -mantissa_bits), exponent - bias());
  }
  double min_normal() const { return std::ldexp(1.0, 1 - bias()); }
  double min_subnormal() const { return std::ldexp(1.0, 1 - bias() - mantissa_bits); }
  double ulp_at_1() const { return std::ldexp(1.0, -mantissa_bits); }
  double exact_integers() const { return std::fmin(std::ldexp(1.0, mantissa_bits + 1), std::floor(max())); }
  double ulp(double x) const {  // distance from |x| to the next larger representable number
    x = std::fabs(x);
    return x < min_normal() ? min_subnormal() : std::ldexp(1.0, std::ilogb(x) - mantissa_bits);
  }
};

template <class T>
constexpr FloatFormat format_of(std::string_view name) {
  using B = Bits<T>;
  return {name, B::exponent, B::mantissa, B::storage, B::max, B::infinity != 0, B::nan != 0};
}

inline constexpr std::array float_formats{format_of<float>("fp32"), format_of<tf32>("tf32"), format_of<bf16>("bf16"),
                                          format_of<f16>("fp16"),   format_of<e4m3>("e4m3"), format_of<e5m2>("e5m2"),
                                          format_of<e2m1>("e2m1")};

// Elements of one format that share a scale per block.
struct BlockFormat {
  std::string_view name;
  FloatFormat element;
  int block = 0;           // values that share a scale
  std::string_view scale;  // its format
  int scale_bits = 0;
  double max_scale = 0, min_scale = 0;
  int tensor_scale_bytes = 0;  // once per tensor

  double bytes_per_value() const { return (element.storage_bits + double(scale_bits) / block) / 8; }
};

inline constexpr std::array block_formats{BlockFormat{"MXFP8 (e4m3)", format_of<e4m3>("e4m3"), mx_block, "e8m0", 8, 0x1p127, 0x1p-127, 0},
                                          BlockFormat{"MXFP8 (e5m2)", format_of<e5m2>("e5m2"), mx_block, "e8m0", 8, 0x1p127, 0x1p-127, 0},
                                          BlockFormat{"MXFP4", format_of<e2m1>("e2m1"), mx_block, "e8m0", 8, 0x1p127, 0x1p-127, 0},
                                          BlockFormat{"NVFP4", format_of<e2m1>("e2m1"), nvfp4_block, "e4m3", 8, 448, 0x1p-9, 4}};

// Calls f with the storage type of a format's name: with_format("bf16", [&]<class T>() { … }).
template <class F>
decltype(auto) with_format(std::string_view name, F&& f) {
  if (name == "fp32") return f.template operator()<float>();
  if (name == "tf32") return f.template operator()<tf32>();
  if (name == "bf16") return f.template operator()<bf16>();
  if (name == "fp16") return f.template operator()<f16>();
  if (name == "e4m3") return f.template operator()<e4m3>();
  if (name == "e5m2") return f.template operator()<e5m2>();
  if (name == "e2m1") return f.template operator()<e2m1>();
  throw Error(Code::bad_argument, fmt::format("format '{}' is not known: fp32, tf32, bf16, fp16, e4m3, e5m2, e2m1", name));
}

}  // namespace headroom
