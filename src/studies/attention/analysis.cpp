#include "studies/attention/analysis.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "memory/largest_within.h"
#include "ops/attention/choose_dry.h"
#include "report/described_table.h"
#include "studies/device/ceilings.h"
#include "studies/device/described.h"

namespace headroom::studies {

namespace {

using Points = std::vector<std::pair<double, double>>;

// The slope of log y over log x by least squares; nothing below two different x.
std::optional<double> exponent(const Points& points) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [px, py] : points) {
    if (px <= 0 || py <= 0) continue;
    const double lx = std::log(px), ly = std::log(py);
    n += 1;
    x += lx;
    y += ly;
    xx += lx * lx;
    xy += lx * ly;
  }
  const double spread = n * xx - x * x;
  return n >= 2 && spread > 1e-9 ? std::optional((n * xy - x * y) / spread) : std::nullopt;
}

struct Series : AttentionFamily {
  std::vector<const AttentionRow*> rows;

  Points points(auto member) const {
    Points p;
    for (const AttentionRow* r : rows)
      if (r->*member) p.emplace_back(double(r->len_q), double(*(r->*member)));
    return p;
  }
};

AttentionFamily family_of(const AttentionRow& r) { return {r.variant, r.dtype, r.dim, r.mask}; }

std::vector<Series> series_of(const std::vector<AttentionRow>& rows) {
  std::vector<Series> all;
  std::map<std::string, std::size_t> place;
  for (const AttentionRow& r : rows) {
    if (r.status == Status::refused) continue;
    const AttentionFamily family = family_of(r);
    const auto at = place.try_emplace(family.name(), all.size()).first->second;
    if (at == all.size()) all.push_back({family, {}});
    all[at].rows.push_back(&r);
  }
  for (Series& s : all) std::sort(s.rows.begin(), s.rows.end(), [](const auto* a, const auto* b) { return a->len_q < b->len_q; });
  return all;
}

Points last_two(Points p) {
  if (p.size() > 2) p.erase(p.begin(), p.end() - 2);
  return p;
}

std::vector<GrowthRow> exponents(const std::vector<Series>& all) {
  std::vector<GrowthRow> rows;
  for (const Series& s : all) {
    const auto peak = s.points(&AttentionRow::forecast_peak_bytes), saved = s.points(&AttentionRow::saved_bytes);
    if (peak.size() < 2) continue;
    GrowthRow r{s, std::int64_t(s.rows.size())};
    r.fwd_time = exponent(s.points(&AttentionRow::fwd_ms));
    r.bwd_time = exponent(s.points(&AttentionRow::bwd_ms));
    r.peak_bytes = exponent(peak);
    r.saved_bytes = exponent(saved);
    r.peak_bytes_at_the_end = exponent(last_two(peak));
    r.saved_bytes_at_the_end = exponent(last_two(saved));
    rows.push_back(std::move(r));
  }
  return rows;
}

std::vector<EdgeRow> edges(const AttentionSweep& s, const Device& device, const std::vector<Series>& all, int workers) {
  if (!s.documents.empty()) return {};  // their lengths are a row's length: there is none to vary
  std::vector<EdgeRow> rows;
  std::vector<std::pair<std::string, std::uint64_t>> memories;
  memories.emplace_back("this machine", machine_limit(device));
  if (s.memory) memories.emplace_back("--memory", *s.memory);
  for (const Series& one : all) {
    const auto* variant = attention::variant_named(one.variant);
    if (!variant) continue;
    const AttentionRow& r = *one.rows.front();
    const auto peak_at = [&](std::int64_t len) {
      try {
        return std::uint64_t(forecast_case(s.problem(r.dtype, r.mask, one.dim, len), *variant, s.passes, device, workers).bytes.peak);
      } catch (const Error&) { return no_memory_holds; }  // past what a problem may be
    };
    for (const auto& [name, bytes] : memories) {
      const auto len = largest_within((1ll << 31) - 1, bytes, peak_at);
      rows.push_back({one, name, std::int64_t(bytes), len, len ? std::optional(std::int64_t(peak_at(len))) : std::nullopt});
    }
  }
  return rows;
}

// The account of the smallest case that did not fit, as its peak would stand.
std::optional<Record> account_of_misfit(const AttentionSweep& s, const Device& device, const std::vector<AttentionRow>& rows, int workers) {
  const AttentionRow* smallest = nullptr;
  for (const AttentionRow& r : rows)
    if (r.status == Status::oom && r.forecast_peak_bytes && (!smallest || *r.forecast_peak_bytes < *smallest->forecast_peak_bytes))
      smallest = &r;
  if (!smallest) return {};
  const AttentionRow& r = *smallest;
  const auto* variant = attention::variant_named(r.variant);
  if (!variant) return {};
  const auto forecast = forecast_case(s.problem(r.dtype, r.mask, r.dim, r.len_q), *variant, s.passes, device, workers);
  Record account{
      "first_that_does_not_fit",
      fmt::format("The smallest that does not fit: {} {} dim {} len {} {}", r.variant, name_of(r.dtype), r.dim, r.len_q, name_of(r.mask)),
      {}};
  account.add("variant", r.variant).add("dtype", std::string(name_of(r.dtype))).add("dim", r.dim);
  account.add("len", r.len_q).add("mask", name_of(r.mask));
  account.add("peak_bytes", forecast.bytes.peak, Unit::bytes).add("memory_bytes", std::int64_t(s.limit(device)), Unit::bytes);
  if (const auto missing = forecast.bytes.peak - std::int64_t(s.limit(device)); missing > 0)  // else it was the system that refused
    account.add("missing_bytes", missing, Unit::bytes);
  std::vector<ComponentRow> components;
  for (const Entry& e : forecast.at_peak) {
    std::vector<std::string> shape;
    for (int d = 0; d < e.shape.rank; ++d) shape.push_back(std::to_string(e.shape[d]));
    ComponentRow c{.name = e.name.full(), .shape = joined(shape, "x"), .dtype = std::string(name_of(e.dtype))};
    c.bytes = std::int64_t(e.taken);
    c.share = double(e.taken) / double(forecast.bytes.peak);
    c.phase = name_of(e.phase);
    components.push_back(std::move(c));
  }
  account.add(Part{table_of("components", "", components)});
  return account;
}

std::vector<AgainstPlainRow> held_against_plain(const std::vector<AttentionRow>& rows) {
  const auto family = [](const AttentionRow& r) { return attention::family_of(r.variant); };
  const auto problem = [](const AttentionRow& r) {
    return fmt::format("{} {} {} {} {}", name_of(r.dtype), r.dim, r.len_q, r.len_k, name_of(r.mask));
  };
  const auto ratio = [](const auto& plain, const auto& other) {
    return plain && other && *other > 0 ? std::optional(double(*plain) / double(*other)) : std::nullopt;
  };
  std::map<std::string, const AttentionRow*> plain_rows;
  for (const AttentionRow& r : rows)
    if (family(r) == "plain") plain_rows.try_emplace(problem(r), &r);
  std::vector<AgainstPlainRow> all;
  for (const AttentionRow& r : rows) {
    if (r.status == Status::refused || family(r).empty() || family(r) == "plain") continue;
    const auto at = plain_rows.find(problem(r));
    if (at == plain_rows.end()) continue;
    const AttentionRow& plain = *at->second;
    AgainstPlainRow a{family_of(r), r.len_q, r.len_k};
    a.fwd_faster = ratio(plain.fwd_ms, r.fwd_ms);
    a.bwd_faster = ratio(plain.bwd_ms, r.bwd_ms);
    a.saved_fewer = ratio(plain.saved_bytes, r.saved_bytes);
    a.peak_fewer = ratio(plain.forecast_peak_bytes, r.forecast_peak_bytes);
    all.push_back(std::move(a));
  }
  return all;
}

Chart growth(const std::vector<Series>& all, const char* title, auto member, Unit unit) {
  Chart c{title, "len", title, unit, true, {}};
  for (const Series& s : all) {  // what did not fit was not measured: it goes on as a forecast
    Series measured{s, {}}, forecast{s, {}};
    for (const AttentionRow* r : s.rows) (r->ok() ? measured : forecast).rows.push_back(r);
    auto points = measured.points(member), beyond = forecast.points(member);
    if (!points.empty()) beyond.insert(beyond.begin(), points.back());
    const bool drawn = points.size() >= 2;
    if (drawn) c.series.push_back({s.name(), std::move(points)});
    if (beyond.size() >= 2) c.series.push_back({s.name() + ", forecast", std::move(beyond), {}, true, drawn ? s.name() : ""});
  }
  return c;
}

// What every row has in common, in the words of the options.
std::string in_common(const AttentionSweep& s) {
  std::string words = fmt::format("batch {}, heads {}", s.cached.empty() ? s.batch : std::int64_t(s.cached.size()), s.heads);
  if (s.kv_heads && s.kv_heads != s.heads) words += fmt::format(", kv_heads {}", s.kv_heads);
  if (s.len_k) words += fmt::format(", len_k {}", s.len_k);
  if (!s.documents.empty()) words += fmt::format(", {} in each row", counted(s.documents.size(), "document"));
  if (!s.cached.empty()) {
    const auto [least, most] = std::minmax_element(s.cached.begin(), s.cached.end());
    words += fmt::format(", caches of {} to {} positions", *least, *most);
  }
  if (s.page) words += fmt::format(", pages of {}", s.page);
  if (s.dim_v) words += fmt::format(", dim_v {}", s.dim_v);
  if (s.softcap > 0) words += fmt::format(", softcap {:g}", s.softcap);
  if (s.dropout > 0) words += fmt::format(", dropout {:g}", s.dropout);
  if (s.sink) words += ", a sink";
  if (s.alibi) words += ", ALiBi";
  if (s.passes != Passes::both) words += s.passes == Passes::forward ? ", forward alone" : ", backward alone";
  return words;
}

std::optional<double> time_of(const AttentionRow& r) {
  return r.ok() && (r.fwd_ms || r.bwd_ms) ? std::optional(r.fwd_ms.value_or(0) + r.bwd_ms.value_or(0)) : std::nullopt;
}

std::string faster_in_words(const AttentionRow& than, const AttentionRow& fastest) {
  std::vector<std::string> words;
  const auto add = [&](const auto& theirs, const auto& ours, const char* pass) {
    if (theirs && ours && *ours > 0)
      words.push_back(fmt::format("{:.2f}×{} {}", *theirs / *ours, words.empty() ? " as fast as " + than.variant : "", pass));
  };
  add(than.fwd_ms, fastest.fwd_ms, "forward"), add(than.bwd_ms, fastest.bwd_ms, "backward");
  return joined(words);
}

// Which variant is fastest at the longest measured length, beside plain or the next one; and the lengths at which memory ends.
std::string answer_of(const std::vector<AttentionRow>& rows, const std::vector<EdgeRow>& edges) {
  const AttentionRow* longest = nullptr;
  for (const AttentionRow& r : rows)
    if (time_of(r) && (!longest || r.len_q >= longest->len_q)) longest = &r;
  if (!longest) return rows.empty() ? "Nothing was measured." : fmt::format("Nothing was measured: {}.", rows.back().why);
  std::vector<const AttentionRow*> same;
  for (const AttentionRow& r : rows)
    if (time_of(r) && AttentionFamily{"", r.dtype, r.dim, r.mask} == AttentionFamily{"", longest->dtype, longest->dim, longest->mask} &&
        r.len_q == longest->len_q && r.len_k == longest->len_k)
      same.push_back(&r);
  std::stable_sort(same.begin(), same.end(), [](const auto* a, const auto* b) { return *time_of(*a) < *time_of(*b); });
  const AttentionRow& fastest = *same.front();
  const auto plain =
      std::find_if(same.begin() + 1, same.end(), [](const AttentionRow* r) { return attention::family_of(r->variant) == "plain"; });
  const AttentionRow* than = plain != same.end() ? *plain : same.size() > 1 ? same[1] : nullptr;
  const std::string of =
      fmt::format("at len {} ({}, dim {}, {})", fastest.len_q, name_of(fastest.dtype), fastest.dim, name_of(fastest.mask));
  std::string answer = than ? fmt::format("{} is fastest {}: {}.", fastest.variant, of, faster_in_words(*than, fastest))
                            : fmt::format("{} takes {} {}.", fastest.variant, time_in_words(*time_of(fastest)), of);
  std::vector<std::string> ends;
  std::int64_t memory = 0;
  for (const EdgeRow& e : edges) {  // edges of --memory, if it is given
    if (e.memory != edges.back().memory || e.of.dtype != fastest.dtype || e.of.dim != fastest.dim || !(e.of.mask == fastest.mask)) continue;
    memory = e.memory_bytes;
    if (e.of.variant == fastest.variant || (than && e.of.variant == than->variant))
      ends.push_back(fmt::format("{} with {}", e.largest_len, e.of.variant));
  }
  if (!ends.empty()) answer += fmt::format(" In {} the largest len is {}.", bytes_in_words(double(memory)), joined(ends));
  if (const auto wrong = std::count_if(rows.begin(), rows.end(), [](const AttentionRow& r) { return r.status == Status::failed; });
      wrong > 0)
    answer = fmt::format("{} of {} rows failed. ", wrong, rows.size()) + answer;
  return answer;
}

}  // namespace

std::string AttentionFamily::name() const { return fmt::format("{} {} dim {} {}", variant, name_of(dtype), dim, name_of(mask)); }

AttentionAnalysis analysis_of(const AttentionSweep& s, const Device& device, const std::vector<AttentionRow>& rows) {
  const int workers = device.kind == DeviceKind::cpu ? available_cores() : 1;
  const auto all = series_of(rows);
  return {exponents(all), edges(s, device, all, workers), held_against_plain(rows), account_of_misfit(s, device, rows, workers)};
}

void add_analysis(const AttentionAnalysis& a, Record& into) {
  if (!a.exponents.empty())
    into.add(Part{table_of("exponents", "Growth with the length: y ~ len^e (fitted over all lengths; bytes also over the two largest)",
                           a.exponents)});
  if (!a.edges.empty()) into.add(Part{table_of("edge", "The largest length that fits", a.edges)});
  if (a.misfit) into.add(Part{*a.misfit});
  if (!a.against_plain.empty())
    into.add(
        Part{table_of("against_plain", "Against plain, row by row: how many times faster, how many times fewer bytes", a.against_plain)});
}

Record attention_record(const AttentionSweep& s, const Device& device, const SweepResult& result) {
  const AttentionAnalysis found = analysis_of(s, device, result.rows);
  Record r{"attention", answer_of(result.rows, found.edges), {}};
  Record d{"device", fmt::format("Attention on {}", device.name), {}};
  add_fields(d, fields_of(device));
  if (!device.driver.empty()) d.add("timing", std::string(gpu_timing));
  d.add("usable_bytes", std::int64_t(s.limit(device)), Unit::bytes);
  if (!device.ceilings.source.empty()) {
    Record roof{"ceilings", "Its ceilings", {}};
    d.add(Part{add_fields(roof, fields_of(device.ceilings))});
  }
  r.add(Part{std::move(d)}).add(Part{table_of("rows", in_common(s), result.rows)});
  for (const AttentionRow& row : result.rows)
    if (!row.why.empty())
      r.add(Part{Note{fmt::format("{} {} dim {} len {} {}: {}: {}", row.variant, name_of(row.dtype), row.dim, row.len_q, name_of(row.mask),
                                  names_of<Status>.of(row.status), row.why),
                      false}});
  Record analysis{"analysis", "", {}};
  add_analysis(found, analysis);
  Chart peak = growth(series_of(result.rows), "peak bytes over len (log)", &AttentionRow::forecast_peak_bytes, Unit::bytes);
  if (!peak.series.empty()) analysis.add(Part{std::move(peak)});
  return r.add(Part{std::move(analysis)});
}

}  // namespace headroom::studies
