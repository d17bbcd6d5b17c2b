// The rows of headroom attention: times and bytes over the length for every variant, dashed on from the largest that was measured to the
// edge of memory by the forecast, and each variant against plain.
#include <algorithm>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "studies/attention_analysis.h"
#include "studies/report/parts.h"

namespace headroom::studies {

namespace {

std::optional<std::vector<AttentionRow>> attention_rows(const ReportRun& run) {
  std::vector<AttentionRow> rows;
  for (const RowObject& row : run.rows()) {
    if (!row.contains("variant") || !row.contains("len_q") || !row.contains("forecast_peak_bytes")) return {};
    try {
      RowObject whole = row;
      if (whole.contains("why") && whole["why"].is_null()) whole["why"] = "";  // CSV does not tell nothing from an empty word
      rows.push_back(attention_row_of(whole.dump(-1, ' ', false, RowObject::error_handler_t::replace)));
    } catch (const Error&) {
      return {};  // another program's rows: shown as they are
    }
  }
  return rows.empty() ? std::nullopt : std::optional(rows);
}

// The machine that the run names: the one here, one that is known by name, or what the file says of it. Without memory: not known.
Device device_of(const ReportRun& run) {
  if (Device here = cpu_device(); here.name == run.machine) return here;
  for (const Device& d : known_devices())
    if (d.name == run.machine) return d;
  Device d;
  d.name = run.machine;
  for (const char* field : {"memory_bytes", "available_bytes"})  // the second, where there is one: what could be taken
    if (run.device.contains(field) && run.device[field].is_number_unsigned()) d.memory_bytes = run.device[field].get<std::uint64_t>();
  d.total_bytes = d.memory_bytes;
  if (run.device.contains("kind") && run.device["kind"] == "cuda") d.kind = DeviceKind::cuda;
  return d;
}

AttentionSweep sweep_of(const ReportRun& run, const std::vector<AttentionRow>& rows) {
  AttentionSweep s;
  const AttentionRow& r = rows.front();
  s.batch = r.batch, s.heads = r.heads, s.kv_heads = r.kv_heads;
  const bool own_keys = std::any_of(rows.begin(), rows.end(), [](const auto& x) { return x.len_k != x.len_q; });
  s.len_k = own_keys ? r.len_k : 0;
  const bool backward = std::any_of(rows.begin(), rows.end(), [](const auto& x) { return x.bwd_ms || x.saved_bytes; });
  s.passes = backward ? Passes::both : Passes::forward;
  if (run.settings.contains("memory") && run.settings["memory"].is_number_unsigned() && run.settings["memory"] != 0)
    s.memory = run.settings["memory"].get<std::uint64_t>();
  return s;
}

struct Edge {
  std::string variant, choice, memory;
  double len, peak_bytes, memory_bytes;
};

std::string choice_of(const AttentionRow& r) { return fmt::format("{} · dim {} · {}", r.dtype, r.dim, r.mask); }

const Table* table_in(const Record& r, std::string_view name) {
  for (const Part& p : r.parts)
    if (const auto* t = std::get_if<Table>(&p.is); t && t->name == name) return t;
  return nullptr;
}

Value cell(const Table& t, const std::vector<Value>& row, std::string_view column) {
  for (std::size_t c = 0; c < t.columns.size(); ++c)
    if (t.columns[c].name == column) return row[c];
  return {};
}
double number(const Value& v) {
  if (const auto* i = std::get_if<std::int64_t>(&v)) return double(*i);
  const auto* d = std::get_if<double>(&v);
  return d ? *d : 0;
}
std::string word(const Value& v) {
  const auto* s = std::get_if<std::string>(&v);
  return s ? *s : "";
}

std::vector<Edge> edges_in(const Record& analysis) {
  std::vector<Edge> out;
  if (const Table* t = table_in(analysis, "edge"))
    for (const auto& row : t->rows) {
      const auto at = [&](const char* name) { return cell(*t, row, name); };
      out.push_back({word(at("variant")),
                     fmt::format("{} · dim {} · {}", word(at("dtype")), std::int64_t(number(at("dim"))), word(at("mask"))),
                     word(at("memory")), number(at("largest_len")), number(at("peak_bytes")), number(at("memory_bytes"))});
    }
  return out;
}

// The machine by its name: a page is read on another.
void name_machine(Record& analysis, const std::string& machine) {
  for (Part& p : analysis.parts)
    if (auto* t = std::get_if<Table>(&p.is); t && t->name == "edge" && !machine.empty())
      for (auto& row : t->rows)
        for (Value& v : row)
          if (v == Value("this machine")) v = machine;
}

std::string grouped(std::int64_t n) {  // 35 706 364, as the page's tables write it
  std::string digits = std::to_string(n);
  for (auto at = std::int64_t(digits.size()) - 3; at > 0 && n >= 10'000; at -= 3) digits.insert(std::size_t(at), "\u202f");
  return digits;
}

using Member = std::function<std::optional<double>(const AttentionRow&)>;

// One frame: a chart for every dtype, dim and mask, a line for every variant.
std::vector<Chart> over_len(const std::vector<AttentionRow>& rows, const std::string& title, Unit unit, const Member& y) {
  std::vector<Chart> charts;
  for (const AttentionRow& r : rows) {
    if (r.status == "refused" || r.len_q <= 0) continue;
    const std::string choice = choice_of(r);
    auto chart = std::find_if(charts.begin(), charts.end(), [&](const Chart& c) { return c.choice == choice; });
    if (chart == charts.end()) {
      charts.push_back({title, "len", unit == Unit::ms ? "ms" : unit == Unit::tflops ? "TFLOP/s" : "", unit, true, {}});
      chart = charts.end() - 1, chart->choice = choice;
    }
    const auto value = y(r);
    if (!value || *value <= 0) continue;
    auto line = std::find_if(chart->series.begin(), chart->series.end(), [&](const auto& s) { return s.name == r.variant; });
    if (line == chart->series.end()) line = chart->series.insert(line, {r.variant, {}});
    line->points.emplace_back(double(r.len_q), *value);
  }
  for (Chart& c : charts) {
    std::erase_if(c.series, [](const auto& s) { return s.points.size() < 2; });
    for (auto& s : c.series) std::sort(s.points.begin(), s.points.end());
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

void go_on_to_the_edge(std::vector<Chart>& charts, const std::vector<Edge>& edges) {
  for (Chart& c : charts) {
    std::vector<Chart::Series> dashed;
    for (const Edge& e : edges) {
      if (e.choice != c.choice || e.len <= 0) continue;
      const auto named = std::find_if(c.marks.begin(), c.marks.end(), [&](const auto& m) { return m.at == e.memory_bytes; });
      if (named == c.marks.end()) c.marks.push_back({fmt::format("{}: {}", e.memory, bytes_in_words(e.memory_bytes)), e.memory_bytes});
      for (const auto& s : c.series) {
        if (s.name != e.variant) continue;
        c.marks.push_back({fmt::format("{} ends at {}", s.name, grouped(std::int64_t(e.len))), e.len, true});
        if (s.points.back().first < e.len)
          dashed.push_back({s.name + ", forecast", {s.points.back(), {e.len, e.peak_bytes}}, {}, true, s.name});
      }
    }
    for (auto& s : dashed) c.series.push_back(std::move(s));
  }
}

void add_against_plain(const Record& analysis, Record& into) {
  const Table* t = table_in(analysis, "against_plain");
  if (!t) return;
  std::vector<Chart> charts;
  constexpr std::pair<const char*, const char*> lines[] = {
      {"fwd_faster", "forward, times faster"}, {"bwd_faster", "backward, times faster"}, {"saved_fewer", "held, times fewer bytes"}};
  for (const auto& row : t->rows) {
    const std::string choice = fmt::format("{} · {} · dim {} · {}", word(cell(*t, row, "variant")), word(cell(*t, row, "dtype")),
                                           std::int64_t(number(cell(*t, row, "dim"))), word(cell(*t, row, "mask")));
    auto chart = std::find_if(charts.begin(), charts.end(), [&](const Chart& c) { return c.choice == choice; });
    if (chart == charts.end()) {
      charts.push_back({"Against plain", "len", "", Unit::ratio, true, {}});
      chart = charts.end() - 1, chart->choice = choice;
      chart->marks.push_back({"plain", 1});
      for (const auto& [field, name] : lines) chart->series.push_back({name, {}});
    }
    for (std::size_t l = 0; l < std::size(lines); ++l)
      if (const double y = number(cell(*t, row, lines[l].first)); y > 0)
        chart->series[l].points.emplace_back(number(cell(*t, row, "len_q")), y);
  }
  for (Chart& c : charts) {
    std::erase_if(c.series, [](const auto& s) { return s.points.size() < 2; });
    if (!c.series.empty()) into.add(Part{std::move(c)});
  }
}

// Why the rows' kernels cannot be walked dry by this build, as a GPU's without CUDA cannot; empty when they can.
std::string why_not_walked(const AttentionSweep& s, const Device& device, const std::vector<AttentionRow>& rows) try {
  for (const AttentionRow& r : rows) {
    const auto* variant = attention::variant_named(r.variant);
    const auto dtype = precision_named(r.dtype);
    const auto mask = attention::mask_named(r.mask);
    if (!variant || r.status == "refused" || !dtype || !mask) continue;
    forecast_case(s.problem(*dtype, *mask, r.dim, std::min<std::int64_t>(r.len_q, 64)), *variant, s.passes, device, 1);
  }
  return "";
} catch (const Error& e) { return e.what(); }

}  // namespace

bool holds_attention(const ReportRun& run) { return attention_rows(run).has_value(); }

void add_attention(const ReportRun& run, Record& into) {
  const auto rows = attention_rows(run);
  if (!rows) return;
  const Device device = device_of(run);
  const AttentionSweep sweep = sweep_of(run, *rows);
  const std::string why_not = why_not_walked(sweep, device, *rows);
  Record analysis = why_not.empty() ? analysis_of(sweep, device, *rows) : Record{};
  if (!why_not.empty()) into.add(Part{Note{fmt::format("Where memory ends is not forecast here: {}.", why_not)}});
  if (device.memory_bytes == 0)
    std::erase_if(analysis.parts, [](const Part& p) {
      const auto* t = std::get_if<Table>(&p.is);
      return t && t->name == "edge";
    });
  name_machine(analysis, device.name);
  const auto optional = [](auto member) {
    return [member](const AttentionRow& r) { return r.*member ? std::optional<double>(double(*(r.*member))) : std::nullopt; };
  };
  add_all(over_len(*rows, "Forward time over len", Unit::ms, optional(&AttentionRow::fwd_ms)), true, into);
  add_all(over_len(*rows, "Backward time over len", Unit::ms, optional(&AttentionRow::bwd_ms)), true, into);
  auto peak = over_len(*rows, "Peak bytes over len", Unit::bytes, optional(&AttentionRow::forecast_peak_bytes));
  go_on_to_the_edge(peak, edges_in(analysis));
  if (!why_not.empty() && device.memory_bytes > 0)
    for (Chart& c : peak)
      c.marks.push_back({fmt::format("{}: {}", device.name, bytes_in_words(double(sweep.limit(device)))), double(sweep.limit(device))});
  add_all(std::move(peak), true, into);
  add_all(over_len(*rows, "Bytes held for backward over len", Unit::bytes, optional(&AttentionRow::saved_bytes)), true, into);
  add_all(over_len(*rows, "Forward rate over len", Unit::tflops, optional(&AttentionRow::fwd_tflops)), false, into);
  add_against_plain(analysis, into);
  for (Part& p : analysis.parts)
    if (!std::holds_alternative<Chart>(p.is)) into.add(std::move(p));
}

}  // namespace headroom::studies
