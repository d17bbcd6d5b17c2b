#include "studies/precision_formats.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/formats.h"
#include "base/random.h"

namespace headroom::precision {
namespace {

template <class T>
void through_mx(const float* x, float* y, int count) {
  T element[mx_block];
  mx_decode(element, mx_encode(x, element, count), y, count);
}

std::vector<float> there_and_back(std::string_view format, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  const auto by_blocks = [&](int block, auto&& f) {
    for (std::size_t i = 0; i < x.size(); i += std::size_t(block))
      f(&x[i], &y[i], int(std::min<std::size_t>(std::size_t(block), x.size() - i)));
  };
  if (format == "MXFP8 (e4m3)")
    by_blocks(mx_block, through_mx<e4m3>);
  else if (format == "MXFP8 (e5m2)")
    by_blocks(mx_block, through_mx<e5m2>);
  else if (format == "MXFP4")
    by_blocks(mx_block, through_mx<e2m1>);
  else if (format == "NVFP4") {
    const float tensor = nvfp4_tensor_scale(largest_magnitude(x.data(), int(x.size())));
    by_blocks(nvfp4_block, [&](const float* from, float* to, int count) {
      e2m1 element[nvfp4_block];
      nvfp4_decode(element, nvfp4_encode(from, element, count, tensor), tensor, to, count);
    });
  } else {
    with_format(format, [&]<class T>() {
      for (std::size_t i = 0; i < x.size(); ++i) y[i] = widen(narrow<T>(x[i]));
    });
  }
  return y;
}

std::string specials(const FloatFormat& f) { return f.has_infinity ? "infinity, NaN" : f.has_nan ? "NaN" : "none: saturates"; }

}  // namespace

double format_error(std::string_view format, const FormatsSettings& s) {
  check(s.values >= 1 && s.values <= 1 << 28, Code::bad_argument, "values: {}; 1 to 268435456 are allowed", s.values);
  std::vector<float> x(static_cast<std::size_t>(s.values));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{s.seed}.normal(i);
  const auto y = there_and_back(format, x);
  double error = 0, whole = 0;
  for (std::size_t i = 0; i < x.size(); ++i) error += (double(x[i]) - y[i]) * (double(x[i]) - y[i]), whole += double(x[i]) * x[i];
  return std::sqrt(error / whole);
}

Record formats_record(const FormatsSettings& s) {
  Record record{"formats", "Number formats", {}};
  Table table{"rows",
              "",
              {{"format"},
               {"bits"},
               {"exponent_bits"},
               {"mantissa_bits"},
               {"max"},
               {"min_normal"},
               {"min_subnormal"},
               {"ulp_at_1"},
               {"digits"},
               {"exact_integers", Unit::exact},
               {"specials"},
               {"bytes_per_value", Unit::exact},
               {"rms_error", Unit::error}},
              {}};
  for (const auto& f : float_formats)
    table.add({std::string(f.name), std::int64_t(1 + f.exponent_bits + f.mantissa_bits), std::int64_t(f.exponent_bits),
               std::int64_t(f.mantissa_bits), f.max(), f.min_normal(), f.min_subnormal(), f.ulp_at_1(),
               (f.mantissa_bits + 1) * std::log10(2.0), std::int64_t(f.exact_integers()), specials(f), f.storage_bits / 8.0,
               format_error(f.name, s)});
  Table blocks{"blocks",
               "With a scale per block",
               {{"format"},
                {"element"},
                {"block"},
                {"scale"},
                {"max"},
                {"min"},
                {"bytes_per_value", Unit::exact},
                {"bytes_per_tensor"},
                {"rms_error", Unit::error}},
               {}};
  for (const auto& f : block_formats)
    blocks.add({std::string(f.name), std::string(f.element.name), std::int64_t(f.block), std::string(f.scale),
                f.element.max() * f.max_scale, f.element.min_subnormal() * f.min_scale, f.bytes_per_value(),
                std::int64_t(f.tensor_scale_bytes), format_error(f.name, s)});
  record.add({std::move(table)});
  record.add({std::move(blocks)});
  record.add({Note{fmt::format(
      "rms_error: of {} numbers from N(0, 1), rounded to the format and back, as a share of their RMS. exact_integers: all whole "
      "numbers up to it are exact. tf32 is 19 bits stored in 32. NVFP4's max and min are before the tensor's own fp32 scale.",
      s.values)}});
  return record;
}

}  // namespace headroom::precision
