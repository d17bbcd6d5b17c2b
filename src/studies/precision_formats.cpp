#include "studies/precision_formats.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "studies/precision_arithmetic.h"
#include "studies/precision_gpu.h"

namespace headroom::precision {
namespace {

std::vector<float> normal_numbers(const FormatsSettings& s) {
  check(s.values >= 1 && s.values <= 1 << 28, Code::bad_argument, "values: {}; 1 to 268435456 are allowed", s.values);
  std::vector<float> x(static_cast<std::size_t>(s.values));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{s.seed}.normal(i);
  return x;
}

std::vector<float> there_and_back(std::string_view format, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  with_trip(format, largest_magnitude(x.data(), int(x.size())), [&](auto trip) {
    constexpr std::size_t block = decltype(trip)::block;
    for (std::size_t i = 0; i < x.size(); i += block) trip(&x[i], &y[i], int(std::min(block, x.size() - i)));
  });
  return y;
}

std::string specials(const FloatFormat& f) { return f.has_infinity ? "infinity, NaN" : f.has_nan ? "NaN" : "none: saturates"; }

}  // namespace

double format_error(std::string_view format, const FormatsSettings& s) {
  const auto x = normal_numbers(s), y = there_and_back(format, x);
  double error = 0, whole = 0;
  for (std::size_t i = 0; i < x.size(); ++i) error += (double(x[i]) - y[i]) * (double(x[i]) - y[i]), whole += double(x[i]) * x[i];
  return std::sqrt(error / whole);
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) { return bits_of(x) == bits_of(y) || (x != x && y != y); });
}

Record formats_record(const FormatsSettings& s, const Place* card) {
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
  if (card) {
    const auto x = normal_numbers(s);
    for (Table* t : {&table, &blocks}) {
      t->columns.push_back({"equal_on_gpu"});
      for (auto& row : t->rows) {
        const auto& format = std::get<std::string>(row.front());
        row.emplace_back(equal_bits(there_and_back(format, x), round_trip_on(*card, format, x)));
      }
    }
  }
  record.add({std::move(table)});
  record.add({std::move(blocks)});
  record.add({Note{fmt::format(
      "rms_error: of {} numbers from N(0, 1), rounded to the format and back, as a share of their RMS. exact_integers: all whole "
      "numbers up to it are exact. tf32 is 19 bits stored in 32. NVFP4's max and min are before the tensor's own fp32 scale.",
      s.values)}});
  return record;
}

}  // namespace headroom::precision
