// Properties of a number format, computed from its layout in convert.h: range, precision, bytes with scales.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/block_scale.h"
#include "base/convert.h"
#include "base/error.h"
#include "base/text.h"

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

// Every format: its name and the type that stores it.
template <class T>
struct NamedFormat {
  using type = T;
  std::string_view name;
};
inline constexpr std::tuple named_formats{NamedFormat<float>{"fp32"}, NamedFormat<tf32>{"tf32"}, NamedFormat<bf16>{"bf16"},
                                          NamedFormat<f16>{"fp16"},   NamedFormat<e4m3>{"e4m3"}, NamedFormat<e5m2>{"e5m2"},
                                          NamedFormat<e2m1>{"e2m1"}};

inline constexpr std::array float_formats =
    std::apply([](auto... f) { return std::array{format_of<typename decltype(f)::type>(f.name)...}; }, named_formats);

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
template <std::size_t I = 0, class F>
decltype(auto) with_format(std::string_view name, F&& f) {
  using Here = std::remove_cvref_t<decltype(std::get<I>(named_formats))>;
  if (name == std::get<I>(named_formats).name) return f.template operator()<typename Here::type>();
  if constexpr (I + 1 < std::tuple_size_v<decltype(named_formats)>) return with_format<I + 1>(name, std::forward<F>(f));
  std::vector<std::string> names;
  for (const FloatFormat& known : float_formats) names.emplace_back(known.name);
  throw Error(Code::bad_argument, fmt::format("there is no format '{}'; choose from {}", name, joined(names)));
}

}  // namespace headroom
