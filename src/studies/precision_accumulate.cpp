#include "studies/precision_accumulate.h"

#include <algorithm>
#include <cmath>

#include "base/formats.h"
#include "base/random.h"

namespace headroom::precision {
namespace {

constexpr int path_points = 48;

// The ways to add one more number. `value()` is the sum so far; everything inside is rounded to T.
template <class T>
float rounded(float x) {
  return widen(narrow<T>(x));
}

template <class T>
struct Sequential {
  float sum = 0;
  void add(float x) { sum = rounded<T>(sum + x); }
  float value() const { return sum; }
};

template <class T>
struct Kahan {
  float sum = 0, lost = 0;  // lost: what the last addition rounded away
  void add(float x) {
    const float corrected = rounded<T>(x - lost), next = rounded<T>(sum + corrected);
    lost = rounded<T>(rounded<T>(next - sum) - corrected);
    sum = next;
  }
  float value() const { return sum; }
};

template <class T>
struct Blocked {
  std::int64_t block, inside = 0;
  float total = 0, part = 0;
  void add(float x) {
    part = rounded<T>(part + x);
    if (++inside < block) return;
    total = value(), part = 0, inside = 0;
  }
  float value() const { return rounded<T>(total + part); }
};

template <class T>
struct Stochastic {
  Random random;
  std::uint64_t step = 0;
  float sum = 0;
  void add(float x) { sum = widen(narrow_stochastic<T>(sum + x, std::uint32_t(random.bits(step++) >> 32))); }
  float value() const { return sum; }
};

template <class T>
float pairwise(float x, std::int64_t count) {  // equal numbers: halves of equal length have equal sums
  if (count == 1) return x;
  const float first = pairwise<T>(x, count / 2);
  return rounded<T>(first + (count % 2 == 0 ? first : pairwise<T>(x, count - count / 2)));
}

double relative(double got, double exact) { return exact == 0 ? std::fabs(got) : std::fabs(got - exact) / std::fabs(exact); }

// Stops early where nothing changes any more. A sum that carries something along may pause; it has stalled when it no longer
// moved during the second half: even e5m2, whose ulp is a quarter of its value, moves more often while it is right.
template <class Sum>
void run(Accumulation& a, Sum sum) {
  const auto x = float(a.addend);
  const bool sequential = a.method == "sequential", may_stall = a.method != "stochastic" && a.count >= 16 && x != 0;
  std::int64_t next_point = 1, last_change = 0;
  for (std::int64_t step = 1; step <= a.count; ++step) {
    const float before = sum.value();
    sum.add(x);
    const float now = sum.value();
    if (now != before) last_change = step;
    if (sequential && now == before && std::isfinite(now)) a.stall = Stall{step, now};
    if (step >= next_point) {
      a.path.emplace_back(double(step), relative(now, a.value * double(step)));
      next_point = std::max(step + 1, std::int64_t(double(a.count) * double(a.path.size() + 1) / path_points));
    }
    if (a.stall || !std::isfinite(now)) break;
  }
  while (a.stall && next_point <= a.count) {  // the rest of the path is known
    a.path.emplace_back(double(next_point), relative(sum.value(), a.value * double(next_point)));
    next_point = std::max(next_point + 1, std::int64_t(double(a.count) * double(a.path.size() + 1) / path_points));
  }
  if (!a.stall && may_stall && std::isfinite(sum.value()) && a.count - last_change >= a.count / 2) a.stall = Stall{last_change + 1, sum.value()};
  a.result = sum.value();
}

// Where a sum of positive x must stall: at the first power of two whose half ulp is not below x. One binade lower every
// addition moves the sum by at most one ulp, so it lands on that power and not beyond.
double stall_point(const FloatFormat& f, double x) {
  double p = f.min_normal();
  while (f.ulp(p) / 2 < x) p *= 2;
  return p;
}

std::string reason(const Accumulation& a, const FloatFormat& f) {
  const double x = std::fabs(a.addend), at = a.stall ? std::fabs(a.stall->at) : 0, half = f.ulp(at) / 2;
  if (a.value == 0) return "the addend is 0";
  if (std::isinf(x) || std::isnan(x)) return fmt::format("the addend {} is beyond the largest {}, {}", a.value, a.addend_dtype, a.addend);
  if (x == 0) return fmt::format("the addend {} rounds to 0 in {}", a.value, a.addend_dtype);
  if (!std::isfinite(a.result)) return fmt::format("the sum passes the largest {}, {}", a.dtype, f.max());
  if (a.method == "pairwise") return fmt::format("like is added to like, {} roundings deep", int(std::ceil(std::log2(double(a.count)))));
  if (a.method == "kahan")
    return a.stall ? fmt::format("an ulp of {} is {}: what is handed on stalls before it grows so large", at, 2 * half)
                   : "what an addition rounds away is handed on to the next one";
  if (a.method == "blocked")
    return a.stall ? fmt::format("half an ulp of {} is {}: a whole block does not move it", at, half)
                   : "small sums are added among themselves before they meet the large one";
  if (a.method == "stochastic") return "rounds up as often as the rest is large: right on average, with noise";
  if (!a.stall)
    return a.would_stall_at ? fmt::format("half an ulp is still below the addend; it would stall at {}", *a.would_stall_at)
                            : fmt::format("half an ulp is below the addend up to the largest {}", a.dtype);
  if (half == x) return fmt::format("half an ulp of {} is {}, the addend itself: the tie goes back to the even {}", at, half, at);
  return fmt::format("half an ulp of {} is {}, more than the addend {}: every addition rounds back", at, half, x);
}

std::string why_of(const Accumulation& a, const FloatFormat& f) {
  const bool shows = std::isfinite(a.addend) && a.addend != 0 && relative(a.addend, a.value) > 0.01;  // a share of the error is the addend's
  return reason(a, f) + (shows ? fmt::format("; {}({}) is {}", a.addend_dtype, a.value, a.addend) : "");
}

template <class T>
void sum_up(Accumulation& a, const AccumulateSettings& s, const FloatFormat& f) {
  if (a.method == "sequential") run(a, Sequential<T>{});
  if (a.method == "kahan") run(a, Kahan<T>{});
  if (a.method == "blocked") run(a, Blocked<T>{s.block});
  if (a.method == "stochastic") run(a, Stochastic<T>{Random{s.seed}});
  if (a.method == "pairwise") a.result = pairwise<T>(float(a.addend), a.count);
  a.exact = a.value * double(a.count);
  if (a.method == "sequential" && !a.stall && a.addend != 0 && std::isfinite(a.addend))
    if (const double p = stall_point(f, std::fabs(a.addend)); p <= f.max()) a.would_stall_at = std::copysign(p, a.addend);
  a.why = why_of(a, f);
}

Accumulation one(const AccumulateSettings& s, AccumulateSettings::Sum sum, const std::string& method, const std::string& dtype,
                 const std::string& addend, bool explicit_float = false) {
  Accumulation a;
  a.method = method, a.dtype = dtype, a.addend_dtype = addend, a.value = sum.value, a.count = sum.count;
  with_format(addend, [&]<class T>() { a.addend = widen(narrow<T>(float(sum.value))); });
  const std::string narrowed = fmt::format("{}({})", addend, sum.value), number = explicit_float ? fmt::format("float({})", narrowed) : narrowed;
  const std::string how = method == "sequential" ? "" : method == "blocked" ? fmt::format("blocked:{} ", s.block) : method + " ";
  a.experiment = fmt::format("{}{} += {} x{}", how, dtype, number, sum.count);
  with_format(dtype, [&]<class T>() { sum_up<T>(a, s, format_of<T>(dtype)); });
  return a;
}

bool has(const std::vector<std::string>& words, const std::string& word) { return std::find(words.begin(), words.end(), word) != words.end(); }

Value finite_or_none(double x) { return std::isfinite(x) ? Value(x) : Value(fmt::format("{}", x)); }

}  // namespace

const std::vector<std::string>& accumulate_methods() {
  static const std::vector<std::string> all = AccumulateSettings{}.methods;
  return all;
}
const std::vector<std::string>& accumulate_dtypes() {
  static const std::vector<std::string> all = AccumulateSettings{}.dtypes;
  return all;
}

double Accumulation::error() const { return relative(result, exact); }

std::vector<Accumulation> accumulate(const AccumulateSettings& s) {
  std::vector<Accumulation> all;
  for (const auto& sum : s.sums) {
    check(std::isfinite(float(sum.value)), Code::bad_argument, "value: {} is beyond fp32, which ends at {}", sum.value, format_of<float>("").max());
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

Record accumulate_record(const AccumulateSettings& s) {
  Record record{"accumulate", "Sums of equal numbers, every addition rounded to the sum's format", {}};
  Table table{"rows", "", {{"experiment"}, {"result", Unit::exact}, {"exact", Unit::exact, Show::detail}, {"error", Unit::error},
              {"stall_step"}, {"stall_value", Unit::exact}, {"would_stall_at", Unit::exact, Show::detail}, {"why"}, {"method", Unit::none, Show::detail},
              {"dtype", Unit::none, Show::detail}, {"addend_dtype", Unit::none, Show::detail}, {"addend", Unit::exact, Show::detail},
              {"value", Unit::exact, Show::detail}, {"count", Unit::none, Show::detail}, {"device", Unit::none, Show::detail}}, {}};
  const auto all = accumulate(s);
  for (const auto& a : all) {
    const Value none;
    table.add({a.experiment, finite_or_none(a.result), a.exact, finite_or_none(a.error()), a.stall ? Value(a.stall->step) : none,
               a.stall ? Value(a.stall->at) : none, a.would_stall_at ? Value(*a.would_stall_at) : none, a.why, a.method, a.dtype, a.addend_dtype,
               finite_or_none(a.addend), a.value, a.count, std::string("cpu")});
  }
  record.add({std::move(table)});
  for (const auto& sum : s.sums) {
    Chart chart{fmt::format("Relative error of the running sum of {} (each line from its own smallest to its own largest)", sum.value), "additions",
                "error", Unit::error, false, {}};
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

}  // namespace headroom::precision
