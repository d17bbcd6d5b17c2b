#include "studies/attention_analysis.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "studies/ceilings.h"

namespace headroom::studies {

namespace {

using Points = std::vector<std::pair<double, double>>;

// The slope of log y over log x by least squares; nothing below two different x.
Value exponent(const Points& points) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [px, py] : points) {
    if (px <= 0 || py <= 0) continue;
    const double lx = std::log(px), ly = std::log(py);
    n += 1, x += lx, y += ly, xx += lx * lx, xy += lx * ly;
  }
  const double spread = n * xx - x * x;
  return n >= 2 && spread > 1e-9 ? Value((n * xy - x * y) / spread) : Value();
}

struct Series {  // rows that differ in their length alone
  std::string variant, dtype, mask;
  std::int64_t dim;
  std::vector<const AttentionRow*> rows;

  Points points(auto member) const {
    Points p;
    for (const AttentionRow* r : rows)
      if (r->*member) p.emplace_back(double(r->len_q), double(*(r->*member)));
    return p;
  }
  std::string name() const { return fmt::format("{} {} dim {} {}", variant, dtype, dim, mask); }
};

std::vector<Series> series_of(const std::vector<AttentionRow>& rows) {
  std::vector<Series> all;
  for (const AttentionRow& r : rows) {
    if (r.status == "refused") continue;
    const auto at = std::find_if(all.begin(), all.end(), [&](const Series& s) {
      return s.variant == r.variant && s.dtype == r.dtype && s.mask == r.mask && s.dim == r.dim;
    });
    if (at == all.end())
      all.push_back({r.variant, r.dtype, r.mask, r.dim, {&r}});
    else
      at->rows.push_back(&r);
  }
  for (Series& s : all) std::sort(s.rows.begin(), s.rows.end(), [](const auto* a, const auto* b) { return a->len_q < b->len_q; });
  return all;
}

Points last_two(Points p) {
  if (p.size() > 2) p.erase(p.begin(), p.end() - 2);
  return p;
}

Table exponents(const std::vector<Series>& all) {
  Table t{"exponents",
          "Growth with the length: y ~ len^e (fitted over all lengths; bytes also over the two largest)",
          {{"variant"},
           {"dtype"},
           {"dim"},
           {"mask"},
           {"lengths"},
           {"fwd_time"},
           {"bwd_time"},
           {"peak_bytes"},
           {"saved_bytes"},
           {"peak_bytes_at_the_end"},
           {"saved_bytes_at_the_end"}},
          {}};
  for (const Series& s : all) {
    const auto peak = s.points(&AttentionRow::forecast_peak_bytes), saved = s.points(&AttentionRow::saved_bytes);
    if (peak.size() < 2) continue;
    t.add({s.variant, s.dtype, s.dim, s.mask, std::int64_t(s.rows.size()), exponent(s.points(&AttentionRow::fwd_ms)),
           exponent(s.points(&AttentionRow::bwd_ms)), exponent(peak), exponent(saved), exponent(last_two(peak)),
           exponent(last_two(saved))});
  }
  return t;
}

Precision precision_of(const AttentionRow& r) { return *precision_named(r.dtype); }
attention::Mask mask_of(const AttentionRow& r) { return *attention::mask_named(r.mask); }

// The largest length whose dry run stays within memory, by doubling and bisection; 0 when none does.
std::int64_t largest_len(const std::function<std::uint64_t(std::int64_t)>& peak_at, std::uint64_t memory) {
  constexpr std::int64_t most = (1ll << 31) - 1;
  const auto fits = [&](std::int64_t len) { return peak_at(len) <= memory; };
  if (!fits(1)) return 0;
  std::int64_t good = 1;
  while (good < most && fits(std::min(good * 2, most))) good = std::min(good * 2, most);
  for (std::int64_t bad = std::min(good * 2, most); bad - good > 1;) {
    const auto middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

Table edges(const AttentionSweep& s, const Device& device, const std::vector<Series>& all, int workers) {
  Table t{
      "edge",
      "Where memory ends: the largest length that fits",
      {{"variant"}, {"dtype"}, {"dim"}, {"mask"}, {"memory"}, {"memory_bytes", Unit::bytes}, {"largest_len"}, {"peak_bytes", Unit::bytes}},
      {}};
  std::vector<std::pair<std::string, std::uint64_t>> memories;
  memories.emplace_back("this machine", machine_limit(device));
  if (s.memory) memories.emplace_back("--memory", *s.memory);
  for (const Series& one : all) {
    const auto* variant = attention::variant_named(one.variant);
    if (!variant) continue;
    const AttentionRow& r = *one.rows.front();
    const auto peak_at = [&](std::int64_t len) {
      try {
        return std::uint64_t(
            forecast_case(s.problem(precision_of(r), mask_of(r), one.dim, len), *variant, s.passes, device, workers).bytes.peak);
      } catch (const Error&) {
        return std::numeric_limits<std::uint64_t>::max();  // past what a problem may be: no memory holds it
      }
    };
    for (const auto& [name, bytes] : memories) {
      const auto len = largest_len(peak_at, bytes);
      t.add({one.variant, one.dtype, one.dim, one.mask, name, std::int64_t(bytes), len, len ? Value(std::int64_t(peak_at(len))) : Value()});
    }
  }
  return t;
}

// The account of the smallest case that did not fit, as its peak would stand.
void account_of_misfit(const AttentionSweep& s, const Device& device, const std::vector<AttentionRow>& rows, int workers, Record& into) {
  const AttentionRow* smallest = nullptr;
  for (const AttentionRow& r : rows)
    if (r.status == "oom" && r.forecast_peak_bytes && (!smallest || *r.forecast_peak_bytes < *smallest->forecast_peak_bytes)) smallest = &r;
  if (!smallest) return;
  const AttentionRow& r = *smallest;
  const auto* variant = attention::variant_named(r.variant);
  if (!variant) return;
  const auto forecast = forecast_case(s.problem(precision_of(r), mask_of(r), r.dim, r.len_q), *variant, s.passes, device, workers);
  Record account{"first_that_does_not_fit",
                 fmt::format("The smallest that does not fit: {} {} dim {} len {} {}", r.variant, r.dtype, r.dim, r.len_q, r.mask),
                 {}};
  account.add("variant", r.variant).add("dtype", r.dtype).add("dim", r.dim).add("len", r.len_q).add("mask", r.mask);
  account.add("peak_bytes", forecast.bytes.peak, Unit::bytes).add("memory_bytes", std::int64_t(s.limit(device)), Unit::bytes);
  if (const auto missing = forecast.bytes.peak - std::int64_t(s.limit(device)); missing > 0)  // else it was the system that refused
    account.add("missing_bytes", missing, Unit::bytes);
  Table t{"components", "", {{"name"}, {"shape"}, {"dtype"}, {"bytes", Unit::bytes, Show::bar}, {"share", Unit::share}, {"phase"}}, {}};
  for (const Entry& e : forecast.at_peak) {
    std::vector<std::string> shape;
    for (int d = 0; d < e.shape.rank; ++d) shape.push_back(std::to_string(e.shape[d]));
    t.add({e.name.full(), joined(shape, "x"), std::string(name_of(e.dtype)), std::int64_t(e.taken),
           double(e.taken) / double(forecast.bytes.peak), std::string(name_of(e.phase))});
  }
  into.add(Part{account.add(Part{std::move(t)})});
}

Table against_plain(const std::vector<AttentionRow>& rows) {
  Table t{"against_plain",
          "Against plain, row by row: how many times faster, how many times fewer bytes",
          {{"variant"},
           {"dtype"},
           {"dim"},
           {"len_q"},
           {"len_k"},
           {"mask"},
           {"fwd_faster", Unit::ratio, Show::bar},
           {"bwd_faster", Unit::ratio, Show::bar},
           {"saved_fewer", Unit::ratio},
           {"peak_fewer", Unit::ratio}},
          {}};
  const auto family = [](const AttentionRow& r) {
    const auto* v = attention::variant_named(r.variant);
    return v ? v->family : std::string_view();
  };
  const auto ratio = [](const auto& plain, const auto& other) {
    return plain && other && *other > 0 ? Value(double(*plain) / double(*other)) : Value();
  };
  for (const AttentionRow& r : rows) {
    if (r.status == "refused" || family(r).empty() || family(r) == "plain") continue;
    const auto plain = std::find_if(rows.begin(), rows.end(), [&](const AttentionRow& o) {
      return family(o) == "plain" && o.dtype == r.dtype && o.dim == r.dim && o.len_q == r.len_q && o.len_k == r.len_k && o.mask == r.mask;
    });
    if (plain == rows.end()) continue;
    t.add({r.variant, r.dtype, r.dim, r.len_q, r.len_k, r.mask, ratio(plain->fwd_ms, r.fwd_ms), ratio(plain->bwd_ms, r.bwd_ms),
           ratio(plain->saved_bytes, r.saved_bytes), ratio(plain->forecast_peak_bytes, r.forecast_peak_bytes)});
  }
  return t;
}

Chart growth(const std::vector<Series>& all, const char* title, auto member, Unit unit) {
  Chart c{title, "len", title, unit, true, {}};
  for (const Series& s : all)
    if (auto points = s.points(member); points.size() >= 2) c.series.push_back({s.name(), std::move(points)});
  return c;
}

// What every row has in common, in the words of the options.
std::string in_common(const AttentionSweep& s) {
  std::string words = fmt::format("batch {}, heads {}", s.batch, s.heads);
  if (s.kv_heads && s.kv_heads != s.heads) words += fmt::format(", kv_heads {}", s.kv_heads);
  if (s.len_k) words += fmt::format(", len_k {}", s.len_k);
  if (s.passes != Passes::both) words += s.passes == Passes::forward ? ", forward alone" : ", backward alone";
  return words;
}

}  // namespace

Record analysis_of(const AttentionSweep& s, const Device& device, const std::vector<AttentionRow>& rows) {
  const int workers = device.kind == DeviceKind::cpu ? available_cores() : 1;
  const auto all = series_of(rows);
  Record r{"analysis", "", {}};
  if (Table t = exponents(all); !t.rows.empty()) r.add(Part{std::move(t)});
  if (Table t = edges(s, device, all, workers); !t.rows.empty()) r.add(Part{std::move(t)});
  account_of_misfit(s, device, rows, workers, r);
  if (Table t = against_plain(rows); !t.rows.empty()) r.add(Part{std::move(t)});
  if (Chart c = growth(all, "peak bytes over len (log)", &AttentionRow::forecast_peak_bytes, Unit::bytes); !c.series.empty())
    r.add(Part{std::move(c)});
  return r;
}

Record attention_record(const AttentionSweep& s, const Device& device, const SweepResult& result) {
  Record r{"attention", "", {}};
  Record d{"device", fmt::format("Attention on {}", device.name), {}};
  d.add("name", device.name).add("kind", std::string(device.kind == DeviceKind::cpu ? "cpu" : "cuda"));
  d.add("units", std::int64_t(device.units)).add("memory_bytes", std::int64_t(device.total_bytes), Unit::bytes);
  d.add("available_bytes", std::int64_t(device.memory_bytes), Unit::bytes);
  if (!device.driver.empty()) d.add("driver", device.driver).add("timing", std::string(gpu_timing));
  d.add("usable_bytes", std::int64_t(s.limit(device)), Unit::bytes);
  if (const Ceilings& c = device.ceilings; !c.source.empty()) {
    Record roof{"ceilings", "Its ceilings", {}};
    const auto known = [](double x) { return x > 0 ? Value(x) : Value(); };
    roof.add("copy_bytes_per_s", known(c.copy_bytes_per_s), Unit::bytes_per_s).add("fp32_flops", known(c.fp32_flops), Unit::flops);
    roof.add("tf32_flops", known(c.tf32_flops), Unit::flops).add("bf16_flops", known(c.bf16_flops), Unit::flops);
    d.add(Part{roof.add("fp16_flops", known(c.fp16_flops), Unit::flops).add("source", c.source)});
  }
  Table rows = table_of(result.rows);
  rows.title = in_common(s);
  r.add(Part{std::move(d)}).add(Part{std::move(rows)});
  for (const AttentionRow& row : result.rows)
    if (!row.why.empty())
      r.add(Part{
          Note{fmt::format("{} {} dim {} len {} {}: {}: {}", row.variant, row.dtype, row.dim, row.len_q, row.mask, row.status, row.why),
               false}});
  return r.add(Part{analysis_of(s, device, result.rows)});
}

}  // namespace headroom::studies
