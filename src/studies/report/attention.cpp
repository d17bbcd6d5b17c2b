// The rows of headroom attention: times and bytes over the length for every variant, dashed on from the largest that was measured to the
// edge of memory by the forecast, and each variant against plain.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/device_names.h"
#include "base/error.h"
#include "base/text.h"
#include "studies/attention/analysis.h"
#include "studies/report/parts.h"

namespace headroom::studies {

namespace {

std::optional<std::vector<AttentionRow>> attention_rows(const ReportRun& run) {
  std::vector<AttentionRow> rows;
  for (const RowObject& row : run.rows()) {
    if (!row.contains("variant") || !row.contains("len_q") || !row.contains("forecast_peak_bytes")) return {};
    try {
      rows.push_back(read_described<AttentionRow>(row, run.name));
    } catch (const Error&) {
      return {};  // another program's rows: shown as they are
    }
  }
  return rows.empty() ? std::nullopt : std::optional(rows);
}

}  // namespace

Device device_of(const ReportRun& run) {
  if (Device here = cpu_device(); here.name == run.machine) return here;
  if (const Device* d = known_as(run.machine)) return *d;
  Device d;
  d.name = run.machine;
  for (const char* field : {"memory_bytes", "available_bytes"})  // the second, where there is one: what could be taken
    if (run.device.contains(field) && run.device[field].is_number_unsigned()) d.memory_bytes = run.device[field].get<std::uint64_t>();
  d.total_bytes = d.memory_bytes;
  if (run.device.contains("kind") && run.device["kind"] == "cuda") d.kind = DeviceKind::cuda;
  return d;
}

namespace {

AttentionSweep sweep_of(const ReportRun& run, const std::vector<AttentionRow>& rows) {
  AttentionSweep s;
  const AttentionRow& r = rows.front();
  s.batch = r.batch;
  s.heads = r.heads;
  s.kv_heads = r.kv_heads;
  const bool own_keys = std::any_of(rows.begin(), rows.end(), [](const auto& x) { return x.len_k != x.len_q; });
  s.len_k = own_keys ? r.len_k : 0;
  const bool backward = std::any_of(rows.begin(), rows.end(), [](const auto& x) { return x.bwd_ms || x.saved_bytes; });
  s.passes = backward ? Passes::both : Passes::forward;
  if (run.settings.contains("memory") && run.settings["memory"].is_number_unsigned() && run.settings["memory"] != 0)
    s.memory = run.settings["memory"].get<std::uint64_t>();
  return s;
}

std::string choice_of(Precision dtype, std::int64_t dim, const attention::Mask& mask) {
  return fmt::format("{} · dim {} · {}", name_of(dtype), dim, name_of(mask));
}

std::string grouped(std::int64_t n) {  // 35 706 364, as the page's tables write it
  std::string digits = std::to_string(n);
  for (auto at = std::int64_t(digits.size()) - 3; at > 0 && n >= 10'000; at -= 3) digits.insert(std::size_t(at), "\u202f");
  return digits;
}

constexpr const char* forecast_words = ", forecast";

using Member = std::function<std::optional<double>(const AttentionRow&)>;

// One frame: a chart for every dtype, dim and mask, a line for every variant. What was not measured, as the bytes of a row that is oom,
// is a forecast, and a line of its own that goes on with the measured one.
std::vector<Chart> over_len(const std::vector<AttentionRow>& rows, const std::string& title, Unit unit, const Member& y) {
  std::vector<Chart> charts;
  std::map<std::string, std::size_t> place;
  for (const AttentionRow& r : rows) {
    if (r.status == Status::refused || r.len_q <= 0) continue;
    const std::string choice = choice_of(r.dtype, r.dim, r.mask);
    const std::size_t at = place.try_emplace(choice, charts.size()).first->second;
    if (at == charts.size()) {
      charts.push_back({title, "len", unit == Unit::ms ? "ms" : unit == Unit::tflops ? "TFLOP/s" : "", unit, true, {}});
      charts.back().choice = choice;
    }
    const auto value = y(r);
    if (!value || *value <= 0) continue;
    auto& series = charts[at].series;
    const std::string name = r.ok() ? r.variant : r.variant + forecast_words;
    auto line = std::find_if(series.begin(), series.end(), [&](const auto& s) { return s.name == name; });
    if (line == series.end()) line = series.insert(line, {name, {}, {}, true, r.ok() ? "" : r.variant});
    line->points.emplace_back(double(r.len_q), *value);
  }
  for (Chart& c : charts) {
    for (auto& s : c.series) std::sort(s.points.begin(), s.points.end());
    for (auto& s : c.series) {  // a forecast begins where its line ends
      const auto measured = std::find_if(c.series.begin(), c.series.end(), [&](const auto& m) { return m.name == s.continues; });
      if (!s.continues.empty() && measured != c.series.end()) s.points.insert(s.points.begin(), measured->points.back());
    }
    std::erase_if(c.series, [](const auto& s) { return s.points.size() < 2; });
    for (auto& s : c.series)
      if (std::none_of(c.series.begin(), c.series.end(), [&](const auto& m) { return m.name == s.continues; })) s.continues.clear();
  }
  std::erase_if(charts, [](const Chart& c) { return c.series.empty(); });
  return charts;
}

void add_all(std::vector<Chart> charts, bool exponents, Record& into) {
  for (Chart& c : charts) {
    if (exponents)
      for (auto& s : c.series)
        if (s.continues.empty()) {
          const std::string was = s.name;
          s.name = with_exponent(was, s.points);
          for (auto& other : c.series)
            if (other.continues == was) other.continues = s.name;
        }
    into.add(Part{std::move(c)});
  }
}

void go_on_to_the_edge(std::vector<Chart>& charts, const std::vector<EdgeRow>& edges) {
  for (Chart& c : charts)
    for (const EdgeRow& e : edges) {
      if (choice_of(e.of.dtype, e.of.dim, e.of.mask) != c.choice || e.largest_len <= 0) continue;
      const auto line = std::find_if(c.series.begin(), c.series.end(), [&](const auto& s) { return s.name == e.of.variant; });
      if (line == c.series.end()) continue;
      const double len = double(e.largest_len), memory = double(e.memory_bytes);
      const auto named = std::find_if(c.marks.begin(), c.marks.end(), [&](const auto& m) { return m.at == memory; });
      if (named == c.marks.end()) c.marks.push_back({fmt::format("{}: {}", e.memory, bytes_in_words(memory)), memory});
      c.marks.push_back({fmt::format("{} ends at {}", line->name, grouped(e.largest_len)), len, true});
      const auto last = line->points.back();
      const std::string name = line->name + forecast_words, measured = line->name;
      if (last.first >= len) continue;
      auto dashed = std::find_if(c.series.begin(), c.series.end(), [&](const auto& s) { return s.name == name; });
      if (dashed == c.series.end()) dashed = c.series.insert(dashed, {name, {last}, {}, true, measured});
      dashed->points.emplace_back(len, double(e.peak_bytes.value_or(0)));
      std::sort(dashed->points.begin(), dashed->points.end());
    }
}

void add_against_plain(const std::vector<AgainstPlainRow>& rows, Record& into) {
  std::vector<Chart> charts;
  constexpr std::pair<std::optional<double> AgainstPlainRow::*, const char*> lines[] = {
      {&AgainstPlainRow::fwd_faster, "forward, times faster"},
      {&AgainstPlainRow::bwd_faster, "backward, times faster"},
      {&AgainstPlainRow::saved_fewer, "held, times fewer bytes"}};
  for (const AgainstPlainRow& row : rows) {
    const std::string choice = fmt::format("{} · {}", row.of.variant, choice_of(row.of.dtype, row.of.dim, row.of.mask));
    auto chart = std::find_if(charts.begin(), charts.end(), [&](const Chart& c) { return c.choice == choice; });
    if (chart == charts.end()) {
      charts.push_back({"Against plain", "len", "", Unit::ratio, true, {}});
      chart = charts.end() - 1;
      chart->choice = choice;
      chart->marks.push_back({"plain", 1});
      for (const auto& [member, name] : lines) chart->series.push_back({name, {}});
    }
    for (std::size_t l = 0; l < std::size(lines); ++l)
      if (const double y = (row.*lines[l].first).value_or(0); y > 0) chart->series[l].points.emplace_back(double(row.len_q), y);
  }
  for (Chart& c : charts) {
    std::erase_if(c.series, [](const auto& s) { return s.points.size() < 2; });
    if (!c.series.empty()) into.add(Part{std::move(c)});
  }
}

// Why the rows' kernels cannot be walked dry, as those of another version may not; empty when they can.
std::string why_not_walked(const AttentionSweep& s, const Device& device, const std::vector<AttentionRow>& rows) try {
  std::set<std::string> walked;
  for (const AttentionRow& r : rows) {
    const auto* variant = attention::variant_named(r.variant);
    const auto len = std::min<std::int64_t>(r.len_q, 64);
    if (!variant || r.status == Status::refused) continue;
    if (!walked.insert(fmt::format("{} {} {}", r.variant, choice_of(r.dtype, r.dim, r.mask), len)).second) continue;
    forecast_case(s.problem(r.dtype, r.mask, r.dim, len), *variant, s.passes, device, 1);
  }
  return "";
} catch (const Error& e) { return e.what(); }

}  // namespace

bool add_attention(const ReportRun& run, Record& into) {
  const auto rows = attention_rows(run);
  if (!rows) return false;
  const Device device = device_of(run);
  const AttentionSweep sweep = sweep_of(run, *rows);
  const std::string why_not = why_not_walked(sweep, device, *rows);
  AttentionAnalysis analysis;
  if (why_not.empty()) analysis = analysis_of(sweep, device, *rows);
  if (!why_not.empty()) into.add(Part{Note{fmt::format("The largest length is not forecast here: {}.", why_not)}});
  if (device.memory_bytes == 0) analysis.edges.clear();
  for (EdgeRow& e : analysis.edges)  // the machine by its name: a page is read on another
    if (e.memory == "this machine" && !device.name.empty()) e.memory = device.name;
  const auto optional = [](auto member) {
    return [member](const AttentionRow& r) { return r.*member ? std::optional<double>(double(*(r.*member))) : std::nullopt; };
  };
  add_all(over_len(*rows, "Forward time over len", Unit::ms, optional(&AttentionRow::fwd_ms)), true, into);
  add_all(over_len(*rows, "Backward time over len", Unit::ms, optional(&AttentionRow::bwd_ms)), true, into);
  auto peak = over_len(*rows, "Peak bytes over len", Unit::bytes, optional(&AttentionRow::forecast_peak_bytes));
  go_on_to_the_edge(peak, analysis.edges);
  if (!why_not.empty() && device.memory_bytes > 0)
    for (Chart& c : peak)
      c.marks.push_back({fmt::format("{}: {}", device.name, bytes_in_words(double(sweep.limit(device)))), double(sweep.limit(device))});
  add_all(std::move(peak), true, into);
  add_all(over_len(*rows, "Bytes held for backward over len", Unit::bytes, optional(&AttentionRow::saved_bytes)), true, into);
  add_all(over_len(*rows, "Forward rate over len", Unit::tflops, optional(&AttentionRow::fwd_tflops)), false, into);
  add_against_plain(analysis.against_plain, into);
  add_analysis(analysis, into);
  return true;
}

}  // namespace headroom::studies
