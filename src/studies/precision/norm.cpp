#include "studies/precision/norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/interrupt.h"
#include "base/random.h"
#include "gpu/beside.h"
#include "studies/precision/arithmetic.h"
#include "studies/precision/gpu.h"
#include "studies/precision/rows.h"

namespace headroom::studies::precision {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

std::vector<double> exactly(const std::vector<float>& x, bool centred, double eps) {
  double mean = 0, squares = 0;
  if (centred)
    for (float v : x) mean += double(v) / double(x.size());
  for (float v : x) squares += (v - mean) * (v - mean);
  const double rstd = 1 / std::sqrt(squares / double(x.size()) + eps);
  std::vector<double> y;
  for (float v : x) y.push_back((v - mean) * rstd);
  return y;
}

template <class T, class S>
NormError measured(const NormCase& c, double magnitude, std::int64_t rows, std::uint64_t seed, const Place* card) {
  const bool centred = c.norm == "layernorm";
  NormError e;
  double square_error = 0, square_exact = 0, count = 0;
  e.epsilon_lost = true;
  bool finite_inputs = true, finite_squares = true, zero_eps = false;
  std::vector<float> x(static_cast<std::size_t>(c.width)), y(x.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    stop_if_interrupted();
    const Random random = Random{seed}.stream(std::uint64_t(row));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = widen(narrow<T>(float(magnitude * double(random.normal(i)))));
    const Statistics<S> s(x.data(), c.width, centred, c.eps);
    const auto exact = exactly(x, centred, c.eps);
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[i] = rounded<T>(s.output(x[i]));
      const double error = std::fabs(double(y[i]) - exact[i]);
      e.max = std::max(e.max, std::isfinite(error) ? error : infinite);
      square_error += error * error;
      square_exact += exact[i] * exact[i];
      ++count;
      finite_inputs &= std::isfinite(x[i]);
    }
    if (card) e.equal_on_card &= equal_bits(y, beside::call<normalised_on>(*card, {c.dtype, c.statistics, centred, c.eps}, x));
    finite_squares &= std::isfinite(s.squares);
    zero_eps |= s.with_eps == 0;
    e.epsilon_lost &= s.with_eps == s.mean_square;
  }
  const double scale = std::sqrt(square_exact / count);
  e.max = scale > 0 ? e.max / scale : e.max;
  e.rms = scale > 0 ? std::sqrt(square_error / count) / scale : std::sqrt(square_error / count);
  if (!std::isfinite(e.rms)) e.rms = e.max = infinite;
  if (!finite_inputs)
    e.trouble = NormTrouble::inputs_overflow;
  else if (!finite_squares)
    e.trouble = NormTrouble::squares_overflow;
  else if (zero_eps)
    e.trouble = NormTrouble::epsilon_is_zero;
  else if (!e.right())
    e.trouble = NormTrouble::sums_stall;
  return e;
}

const char* in_words(NormTrouble t) {
  switch (t) {
    case NormTrouble::none: return "";
    case NormTrouble::inputs_overflow: return "the inputs themselves overflow";
    case NormTrouble::squares_overflow: return "the sum of squares overflows";
    case NormTrouble::epsilon_is_zero: return "squares and epsilon are both 0: division by zero";
    case NormTrouble::sums_stall: return "too few digits: sums stall or statistics round";
  }
  return "?";
}

Value or_none(const std::optional<double>& x) { return x ? Value(*x) : Value(); }
Value measured_or_words(double x) { return std::isfinite(x) ? Value(x) : Value(std::string("not finite")); }

}  // namespace

NormError norm_error(const NormCase& c, double magnitude, std::int64_t rows, std::uint64_t seed, const Place* card) {
  return with_format(c.dtype, [&]<class T>() {
    return c.statistics == c.dtype ? measured<T, T>(c, magnitude, rows, seed, card) : measured<T, float>(c, magnitude, rows, seed, card);
  });
}

NormLimits norm_limits(const NormCase& c, std::int64_t rows, std::uint64_t seed) {
  NormLimits l;
  const auto [least, most, statistics] = with_format(c.dtype, [&]<class T>() {
    const auto f = format_of<T>(c.dtype);
    return std::tuple(std::ilogb(f.min_normal()), std::ilogb(f.max()), c.statistics == c.dtype ? f : format_of<float>("fp32"));
  });
  for (int k = 2 * least; k <= most && !l.epsilon_lost_from; ++k)
    if (const double square = std::ldexp(1.0, 2 * k); statistics.ulp(square) / 2 >= c.eps && square <= statistics.max())
      l.epsilon_lost_from = std::ldexp(1.0, k);
  const auto error_at = [&](int k) { return norm_error(c, std::ldexp(1.0, k), rows, seed); };
  int inside = 0;  // the largest power up to 1 where outputs are right
  while (inside >= least && !error_at(inside).right()) --inside;
  if (inside < least) {
    l.below = l.above = error_at(0).trouble;
    return l;
  }
  for (int k = inside; k >= least && l.below == NormTrouble::none; --k) {
    const NormError e = error_at(k);
    if (e.right())
      l.right_from = std::ldexp(1.0, k);
    else
      l.below = e.trouble;
  }
  for (int k = inside; k <= most && !l.fails_above; ++k) {
    const NormError e = error_at(k);
    if (e.right())
      l.right_to = std::ldexp(1.0, k);
    else {
      l.fails_above = std::ldexp(1.0, k);
      l.above = e.trouble;
    }
  }
  return l;
}

std::vector<std::string> norm_names() { return NormSettings{}.norms; }
std::vector<std::string> norm_dtypes() { return NormSettings{}.dtypes; }

Record norm_record(const NormSettings& s, const Place* card) {
  for (auto width : s.widths) check(width >= 1, Code::bad_argument, "width: {}; at least 1 is allowed", width);
  for (auto magnitude : s.magnitudes)
    check(std::isfinite(magnitude) && magnitude > 0, Code::bad_argument, "magnitude: {}; a number above 0 is needed", magnitude);
  for (auto eps : s.eps) check(std::isfinite(eps) && eps >= 0, Code::bad_argument, "eps: {}; 0 or more is needed", eps);
  Record record{"norm", "Normalisation against FP64 on the same inputs (errors are shares of the output's RMS)", {}};
  std::vector<NormRow> rows;
  std::vector<NormLimitRow> limits;
  for (const auto& norm : s.norms)
    for (const auto& dtype : s.dtypes)
      for (const std::string& statistics : dtype == "fp32" ? std::vector<std::string>{"fp32"} : std::vector<std::string>{"fp32", dtype})
        for (auto width : s.widths)
          for (auto eps : s.eps) {
            const NormCase c{norm, dtype, statistics, width, eps};
            for (auto magnitude : s.magnitudes) {
              const NormError e = norm_error(c, magnitude, s.rows, s.seed, card);
              NormRow r{.norm = norm, .dtype = dtype, .statistics = statistics, .width = width, .eps = eps, .magnitude = magnitude};
              r.max_error = measured_or_words(e.max);
              r.rms_error = measured_or_words(e.rms);
              if (card) r.equal_bits = e.equal_on_card;
              r.epsilon = e.epsilon_lost ? "lost" : "kept";
              r.status = e.right() ? "right" : "fails";
              if (!e.right()) r.why = in_words(e.trouble);
              r.device = card ? "cpu, cuda" : "cpu";
              rows.push_back(std::move(r));
            }
            const NormLimits l = norm_limits(c, s.rows, s.seed);
            NormLimitRow r{.norm = norm, .dtype = dtype, .statistics = statistics, .width = width, .eps = eps};
            r.right_from = or_none(l.right_from);
            r.right_to = or_none(l.right_to);
            r.fails_from = or_none(l.fails_above);
            r.why = in_words(l.above);
            r.why_below = in_words(l.below);
            r.epsilon_lost_from = or_none(l.epsilon_lost_from);
            limits.push_back(std::move(r));
          }
  Table table = table_of("rows", "", rows);
  if (!card) leave_out(table, "equal_bits");
  record.add({std::move(table)});
  record.add({table_of(
      "limits",
      fmt::format("Magnitudes (powers of two) between which the output is finite and correct to {:.0f} % RMS", 100 * norm_tolerance),
      limits)});
  record.add(
      {Note{"statistics fp32: inputs and outputs are in dtype, sums between them in fp32. epsilon lost: adding it to the mean square "
            "changes nothing "
            "in the statistics' format, which is harmless unless the mean square is 0."}});
  return record;
}

}  // namespace headroom::studies::precision
