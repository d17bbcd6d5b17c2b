#include "studies/precision/formats.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/interrupt.h"
#include "base/random.h"
#include "gpu/beside.h"
#include "studies/precision/arithmetic.h"
#include "studies/precision/gpu.h"
#include "studies/precision/rows.h"

namespace headroom::studies::precision {
namespace {

std::vector<float> normal_numbers(const FormatsSettings& s) {
  check(s.values >= 1 && s.values <= 1 << 28, Code::bad_argument, "values: {}; 1 to 268435456 are allowed", s.values);
  std::vector<float> x(static_cast<std::size_t>(s.values));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % 65536 == 0) stop_if_interrupted();
    x[i] = Random{s.seed}.normal(i);
  }
  return x;
}

std::vector<float> there_and_back(std::string_view format, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  with_trip(format, largest_magnitude(x.data(), int(x.size())), [&](auto trip) {
    constexpr std::size_t block = decltype(trip)::block;
    for (std::size_t i = 0; i < x.size(); i += block) {
      if (i % (65536 * block) == 0) stop_if_interrupted();
      trip(&x[i], &y[i], int(std::min(block, x.size() - i)));
    }
  });
  return y;
}

std::string specials(const FloatFormat& f) { return f.has_infinity ? "infinity, NaN" : f.has_nan ? "NaN" : "none: saturates"; }

}  // namespace

double format_error(std::string_view format, const FormatsSettings& s) {
  const auto x = normal_numbers(s), y = there_and_back(format, x);
  double error = 0, whole = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += (double(x[i]) - y[i]) * (double(x[i]) - y[i]);
    whole += double(x[i]) * x[i];
  }
  return std::sqrt(error / whole);
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) { return bits_of(x) == bits_of(y) || (x != x && y != y); });
}

Record formats_record(const FormatsSettings& s, const Place* card) {
  Record record{"formats", "Number formats", {}};
  std::vector<FormatRow> rows;
  for (const auto& f : float_formats) {
    FormatRow r{.format = std::string(f.name), .bits = 1 + f.exponent_bits + f.mantissa_bits};
    r.exponent_bits = f.exponent_bits;
    r.mantissa_bits = f.mantissa_bits;
    r.max = f.max();
    r.min_normal = f.min_normal();
    r.min_subnormal = f.min_subnormal();
    r.ulp_at_1 = f.ulp_at_1();
    r.digits = (f.mantissa_bits + 1) * std::log10(2.0);
    r.exact_integers = std::int64_t(f.exact_integers());
    r.specials = specials(f);
    r.bytes_per_value = f.storage_bits / 8.0;
    r.rms_error = format_error(f.name, s);
    rows.push_back(std::move(r));
  }
  std::vector<BlockRow> blocks;
  for (const auto& f : block_formats) {
    BlockRow r{.format = std::string(f.name), .element = std::string(f.element.name), .block = f.block, .scale = std::string(f.scale)};
    r.max = f.element.max() * f.max_scale;
    r.min = f.element.min_subnormal() * f.min_scale;
    r.bytes_per_value = f.bytes_per_value();
    r.bytes_per_tensor = std::int64_t(f.tensor_scale_bytes);
    r.rms_error = format_error(f.name, s);
    blocks.push_back(std::move(r));
  }
  if (card) {
    const auto x = normal_numbers(s);
    const auto ask = [&](auto& row) {
      row.equal_on_gpu = equal_bits(there_and_back(row.format, x), beside::call<round_trip_on>(*card, row.format, x));
    };
    for (auto& row : rows) ask(row);
    for (auto& row : blocks) ask(row);
  }
  Table formats = table_of("rows", "", rows), with_scales = table_of("blocks", "With a scale per block", blocks);
  if (!card) {
    leave_out(formats, "equal_on_gpu");
    leave_out(with_scales, "equal_on_gpu");
  }
  record.add({std::move(formats)});
  record.add({std::move(with_scales)});
  record.add({Note{fmt::format(
      "rms_error: of {} numbers from N(0, 1), rounded to the format and back, as a share of their RMS. exact_integers: all whole "
      "numbers up to it are exact. tf32 is 19 bits stored in 32. NVFP4's max and min are before the tensor's own fp32 scale.",
      s.values)}});
  return record;
}

}  // namespace headroom::studies::precision
