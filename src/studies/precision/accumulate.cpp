#include "studies/precision/accumulate.h"

#include <algorithm>
#include <cmath>

#include "base/interrupt.h"
#include "base/random.h"
#include "gpu/beside.h"
#include "studies/precision/arithmetic.h"
#include "studies/precision/gpu.h"
#include "studies/precision/rows.h"

namespace headroom::studies::precision {
namespace {

constexpr int path_points = 48;

double relative(double got, double exact) { return exact == 0 ? std::fabs(got) : std::fabs(got - exact) / std::fabs(exact); }

// Stops early where nothing changes any more. A sum that carries something along may pause at the end: one that is not yet known
// to have stalled is followed until it moves or cannot, so that where it stalls does not depend on the count.
template <class Sum>
void run(Accumulation& a, Sum sum) {
  constexpr bool may_stall = requires { sum.stalled(); };
  const auto x = float(a.addend);
  const auto stalled = [&] {
    if constexpr (may_stall)
      return sum.stalled();
    else
      return false;
  };
  std::int64_t next_point = 1, last_change = 0;
  const auto point = [&](std::int64_t step) {
    a.path.emplace_back(double(step), relative(sum.value(), a.value * double(step)));
    next_point = std::max(step + 1, std::int64_t(double(a.count) * double(a.path.size() + 1) / path_points));
  };
  for (std::int64_t step = 1; step <= a.count && !stalled() && std::isfinite(sum.value()); ++step) {
    if (step % 65536 == 0) stop_if_interrupted();
    const float before = sum.value();
    sum.add(x);
    if (sum.value() != before) last_change = step;
    if (step >= next_point) point(step);
  }
  if constexpr (requires { sum.part_stalled; })
    if (sum.part_stalled > 0) a.block_stall = Stall{sum.part_stalled, sum.part_stalled_at};
  a.result = sum.value();
  while (stalled() && next_point <= a.count) point(next_point);  // the rest of the path is known
  if (!std::isfinite(a.result)) return;
  if (may_stall && last_change < a.count)
    while (!stalled() && sum.value() == a.result) sum.add(x);
  if (stalled() && sum.value() == a.result) a.stall = Stall{last_change + 1, a.result};
}

// Where a sum of positive x must stall: at the first power of two whose half ulp is not below x. One binade lower every
// addition moves the sum by at most one ulp, so it lands on that power and not beyond.
double stall_point(const FloatFormat& f, double x) {
  double p = f.min_normal();
  while (f.ulp(p) / 2 < x) p *= 2;
  return p;
}

double largest(const std::string& format) {
  return with_format(format, [&]<class T>() { return format_of<T>(format).max(); });
}

std::string reason_of_blocks(const Accumulation& a, double at, double half) {
  std::string all = a.stall ? fmt::format("half an ulp of {} is {}: a whole block does not move it", at, half)
                            : "small sums are added to each other before the large one";
  if (a.block_stall)
    all += fmt::format("; the block is too long: its own sum stalls at {} from its addend {} on", std::fabs(a.block_stall->at),
                       a.block_stall->step);
  return all;
}

std::string reason(const Accumulation& a, const FloatFormat& f) {
  const double x = std::fabs(a.addend), at = a.stall ? std::fabs(a.stall->at) : 0, half = f.ulp(at) / 2;
  if (a.value == 0) return "the addend is 0";
  if (std::isinf(x) || std::isnan(x))
    return fmt::format("the addend {} is beyond the largest {}, {}", a.value, a.addend_dtype, largest(a.addend_dtype));
  if (x == 0) return fmt::format("the addend {} rounds to 0 in {}", a.value, a.addend_dtype);
  if (!std::isfinite(a.result)) return fmt::format("the sum passes the largest {}, {}", a.dtype, f.max());
  if (a.method == "pairwise")
    return fmt::format("numbers of similar size are added, {} roundings deep", int(std::ceil(std::log2(double(a.count)))));
  if (a.method == "kahan")
    return a.stall ? fmt::format("an ulp of {} is {}: the carried remainder stalls before it is that large", at, 2 * half)
                   : "the remainder of an addition is carried to the next one";
  if (a.method == "blocked") return reason_of_blocks(a, at, half);
  if (a.method == "stochastic") return "rounds up with the probability of the remainder: correct on average, with noise";
  if (!a.stall)
    return a.would_stall_at ? fmt::format("half an ulp is still below the addend; it would stall at {}", *a.would_stall_at)
                            : fmt::format("half an ulp is below the addend up to the largest {}", a.dtype);
  if (half == x) return fmt::format("half an ulp of {} is {}, the addend itself: the tie goes back to the even {}", at, half, at);
  return fmt::format("half an ulp of {} is {}, more than the addend {}: every addition rounds back", at, half, x);
}

std::string why_of(const Accumulation& a, const FloatFormat& f) {
  const bool shows =
      std::isfinite(a.addend) && a.addend != 0 && relative(a.addend, a.value) > 0.01;  // a share of the error is the addend's
  return reason(a, f) + (shows ? fmt::format("; {}({}) is {}", a.addend_dtype, a.value, a.addend) : "");
}

template <class T>
void sum_up(Accumulation& a, const AccumulateSettings& s, const FloatFormat& f) {
  with_method<T>(a.method, s.block, Random{s.seed}, [&](auto sum) {
    if constexpr (std::is_same_v<decltype(sum), Pairwise<T>>)
      a.result = total(sum, float(a.addend), a.count);
    else
      run(a, sum);
  });
  a.exact = a.value * double(a.count);
  if (a.method == "sequential" && !a.stall && a.addend != 0 && std::isfinite(a.addend))
    if (const double p = stall_point(f, std::fabs(a.addend)); p <= f.max()) a.would_stall_at = std::copysign(p, a.addend);
  a.why = why_of(a, f);
}

Accumulation one(const AccumulateSettings& s, AccumulateSettings::Sum sum, const std::string& method, const std::string& dtype,
                 const std::string& addend, bool explicit_float = false) {
  Accumulation a;
  a.method = method;
  a.dtype = dtype;
  a.addend_dtype = addend;
  a.value = sum.value;
  a.count = sum.count;
  with_format(addend, [&]<class T>() { a.addend = widen(narrow<T>(float(sum.value))); });
  const std::string narrowed = fmt::format("{}({})", addend, sum.value),
                    number = explicit_float ? fmt::format("float({})", narrowed) : narrowed;
  const std::string how = method == "sequential" ? "" : method == "blocked" ? fmt::format("blocked:{} ", s.block) : method + " ";
  a.experiment = fmt::format("{}{} += {} x{}", how, dtype, number, sum.count);
  with_format(dtype, [&]<class T>() { sum_up<T>(a, s, format_of<T>(dtype)); });
  return a;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Value finite_or_none(double x) { return std::isfinite(x) ? Value(x) : Value(fmt::format("{}", x)); }

}  // namespace

std::vector<std::string> accumulate_methods() { return AccumulateSettings{}.methods; }
std::vector<std::string> accumulate_dtypes() { return AccumulateSettings{}.dtypes; }

double Accumulation::error() const { return relative(result, exact); }

std::vector<Accumulation> accumulate(const AccumulateSettings& s) {
  std::vector<Accumulation> all;
  for (const auto& sum : s.sums) {
    check(std::isfinite(float(sum.value)), Code::bad_argument, "value: {} is beyond fp32, which ends at {}", sum.value,
          format_of<float>("").max());
    check(sum.count >= 1, Code::bad_argument, "count: {} additions; at least 1 is allowed", sum.count);
    check(s.block >= 1, Code::bad_argument, "block: {} addends; at least 1 is allowed", s.block);
    for (const auto& method : s.methods)
      for (const auto& dtype : s.dtypes) {
        all.push_back(one(s, sum, method, dtype, dtype));
        if (method != "sequential" || dtype == "fp32" || !has(s.dtypes, "fp32")) continue;
        all.push_back(one(s, sum, method, "fp32", dtype));
        if (dtype == "fp16") all.push_back(one(s, sum, method, "fp32", dtype, true));
      }
  }
  return all;
}

Record accumulate_record(const AccumulateSettings& s, const Place* card) {
  Record record{"accumulate", "Sums of equal numbers, every addition rounded to the sum's format", {}};
  const auto all = accumulate(s);
  std::vector<AccumulateRow> rows;
  for (const auto& a : all) {
    AccumulateRow r{.experiment = a.experiment, .result = finite_or_none(a.result), .exact = a.exact, .error = finite_or_none(a.error())};
    if (a.stall) {
      r.stall_step = a.stall->step;
      r.stall_value = a.stall->at;
    }
    r.would_stall_at = a.would_stall_at;
    r.why = a.why;
    r.method = a.method;
    r.dtype = a.dtype;
    r.addend_dtype = a.addend_dtype;
    r.addend = finite_or_none(a.addend);
    r.value = a.value;
    r.count = a.count;
    r.device = card ? "cpu, cuda" : "cpu";
    if (card) {
      const float there = beside::call<sum_on>(*card, {a.method, a.dtype, float(a.addend), a.count, s.block, Random{s.seed}});
      r.on_gpu = finite_or_none(double(there));
      r.equal_bits = equal_bits({there}, {float(a.result)});
    }
    rows.push_back(std::move(r));
  }
  Table table = table_of("rows", "", rows);
  if (!card) {
    leave_out(table, "on_gpu");
    leave_out(table, "equal_bits");
  }
  record.add({std::move(table)});
  for (const auto& sum : s.sums) {
    Chart chart{fmt::format("Relative error of the running sum of {} (each line is scaled to itself; beside it its first and last error)",
                            sum.value),
                "additions",
                "error",
                Unit::error,
                false,
                {}};
    for (const auto& a : all) {
      if (a.value != sum.value || a.count != sum.count || a.path.size() < 2 || a.dtype != a.addend_dtype) continue;
      Chart::Series series{a.experiment, {}};
      for (const auto& point : a.path)
        if (std::isfinite(point.second)) series.points.push_back(point);
      chart.series.push_back(std::move(series));
    }
    if (!chart.series.empty()) record.add({std::move(chart)});
  }
  return record;
}

}  // namespace headroom::studies::precision
