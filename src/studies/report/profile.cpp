// The tables of headroom profile: the timeline of one step, where its time goes by module and phase, the roofline, the live bytes.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "instruments/profile/activity_file.h"
#include "memory/ledger.h"
#include "studies/memory/live_bytes.h"
#include "studies/report/parts.h"

namespace headroom::studies {

namespace {

constexpr std::size_t most_modules = 16;

template <class Series>
Chart::Series& series_named(Series& all, const std::string& name) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.name == name; });
  return at != all.end() ? *at : all.emplace_back(Chart::Series{name, {}});
}

std::string layer_of(const RowObject& row) {
  const double layer = row.contains("layer") && row["layer"].is_number() ? number_at(row, "layer") : -1;
  return layer < 0 ? "" : fmt::format("block {} ", std::int64_t(layer));
}

// The first of the fields that any row has a word in.
const char* first_with_words(const std::vector<RowObject>& rows, std::initializer_list<const char*> fields) {
  for (const char* field : fields)
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return !text_at(row, field).empty(); })) return field;
  return "";
}

// The row of the timeline that a slice is on: its module's, or its part's where attention is profiled alone; in another program its phase's or stream's.
std::string lane_of(const RowObject& slice, std::string_view by) {
  if (by.empty()) return fmt::format("stream {}", std::int64_t(number_at(slice, "stream")));
  const std::string lane = text_at(slice, by.data());
  return !lane.empty() ? lane : by == "phase" ? "outside every range" : "other";
}

// The steps of which a whole consists: the last one that was recorded; of attention alone the last forward and the last backward.
std::set<double> last_steps(const std::vector<RowObject>& slices, bool of_each_phase) {
  std::map<std::string, double> last;
  for (const auto& s : slices) {
    const auto at = last.try_emplace(of_each_phase ? text_at(s, "phase") : "", 0).first;
    at->second = std::max(at->second, number_at(s, "step"));
  }
  std::set<double> steps;
  for (const auto& [phase, step] : last) steps.insert(step);
  return steps;
}

// A row of the chart for every module, in the order in which they first run.
void add_timeline(const std::vector<RowObject>& slices, Record& into) {
  if (slices.empty()) return;
  Chart c{"Kernel timeline", "ms", "", Unit::none, false, {}, Chart::Kind::spans, Unit::ms};
  std::string phase;
  const std::string_view by = first_with_words(slices, {"module", "part", "phase"});
  const std::set<double> steps = last_steps(slices, by == "part");
  double step = -1, start = 0, end = 0;  // a step begins where the one before it ended
  for (const auto& s : slices) {
    if (!steps.contains(number_at(s, "step"))) continue;
    if (std::exchange(step, number_at(s, "step")) != number_at(s, "step")) start = number_at(s, "start_ms") - end;
    const double from = number_at(s, "start_ms") - start;
    end = std::max(end, from + number_at(s, "ms"));
    const std::string op = text_at(s, "op"), part = text_at(s, "part"), kernel = profile::short_name(text_at(s, "kernel"));
    auto& lane = series_named(c.series, lane_of(s, by));
    lane.points.emplace_back(from, from + number_at(s, "ms"));
    std::string name = op.empty() ? kernel : layer_of(s) + op + (part.empty() ? "" : ": " + part);
    if (!kernel.empty() && !op.empty() && kernel != op) name += fmt::format(" [{}]", kernel);
    lane.names.push_back(name + (text_at(s, "phase").empty() ? "" : ", " + text_at(s, "phase")));
    if (const std::string now = text_at(s, "phase"); by != "phase" && now != phase && !now.empty()) {
      const bool again = std::any_of(c.marks.begin(), c.marks.end(), [&](const auto& m) { return m.name == now; });
      if (!again && (now == "backward" || now == "optimizer")) c.marks.push_back({now == "optimizer" ? "optimiser" : now, from, true});
      phase = now;
    }
  }
  into.add(Part{std::move(c)});
}

enum class Order : std::uint8_t { as_they_come, largest_first };

// Bars of `name`, one for each different word, stacked from the fields.
void add_bars(const std::vector<RowObject>& rows, const char* title, const char* name,
              std::initializer_list<std::pair<const char*, const char*>> fields, Order order, Record& into) {
  std::vector<std::pair<std::string, std::vector<double>>> bars;
  for (const auto& row : rows) {
    const std::string tick = text_at(row, name);
    auto bar = std::find_if(bars.begin(), bars.end(), [&](const auto& b) { return b.first == tick; });
    if (bar == bars.end()) bar = bars.insert(bar, {tick, std::vector<double>(fields.size())});
    std::size_t f = 0;
    for (const auto& [field, series] : fields) bar->second[f++] += number_at(row, field);
  }
  const auto sum = [](const auto& b) {
    double all = 0;
    for (const double v : b.second) all += v;
    return all;
  };
  if (order == Order::largest_first)
    std::stable_sort(bars.begin(), bars.end(), [&](const auto& a, const auto& b) { return sum(a) > sum(b); });
  std::erase_if(bars, [&](const auto& b) { return sum(b) <= 0; });
  if (bars.size() > most_modules) bars.resize(most_modules);
  if (bars.empty()) return;
  Chart c{title, "", "ms", Unit::ms, false, {}, Chart::Kind::bars};
  std::size_t f = 0;
  for (const auto& [field, series] : fields) {
    Chart::Series s{series, {}};
    for (std::size_t b = 0; b < bars.size(); ++b) s.points.emplace_back(double(b), bars[b].second[f]);
    ++f;
    if (std::any_of(s.points.begin(), s.points.end(), [](const auto& p) { return p.second > 0; })) c.series.push_back(std::move(s));
  }
  for (const auto& b : bars) c.ticks.push_back(b.first.empty() ? "other" : profile::short_name(b.first));
  into.add(Part{std::move(c)});
}

// Attention's parts side by side: their shares of the time and of the FLOPs.
void add_shares(const std::vector<RowObject>& rows, Record& into) {
  Chart c{"Softmax against the matmuls of attention", "", "share", Unit::share, false, {}, Chart::Kind::bars};
  c.ticks = {"time", "FLOPs"};
  for (const auto& row : rows) {
    const std::string what = text_at(row, "what");
    if (what.empty()) continue;
    auto& s = series_named(c.series, what);
    s.points = {{0, number_at(row, "time_share")}, {1, number_at(row, "flops_share")}};
  }
  if (c.series.size() > 1) into.add(Part{std::move(c)});
}

// Every op by its FLOPs per byte and what it reached; the roofs are read off the rows that lie under them.
void add_roofline(const std::vector<RowObject>& rows, Record& into) {
  Chart c{"Roofline", "FLOPs per byte", "TFLOP/s", Unit::tflops, true, {}};
  std::map<std::string, double> flat;
  double slope = 0, left = 0, right = 0;
  for (const auto& row : rows) {
    const double intensity = number_at(row, "intensity"), tflops = number_at(row, "tflops"), roof = number_at(row, "roof_tflops");
    if (intensity <= 0 || tflops <= 0) continue;
    left = left > 0 ? std::min(left, intensity) : intensity;
    right = std::max(right, intensity);
    const std::string op = text_at(row, "op");
    auto& s = series_named(c.series, op.substr(0, op.find_first_of(".:")));  // attention.qkv.dx is attention's
    s.joined = false;
    s.points.emplace_back(intensity, tflops);
    s.names.push_back(fmt::format("{}, {:.4g} ms, {:.3g} % of its roof", op, number_at(row, "ms"), 100 * number_at(row, "roof_share")));
    if (roof <= 0) continue;
    if (text_at(row, "bound") == "memory" || text_at(row, "bound") == "bandwidth")
      slope = std::max(slope, roof / intensity);
    else
      flat[text_at(row, "precision")] = std::max(flat[text_at(row, "precision")], roof);
  }
  if (c.series.empty()) return;
  left /= 2;
  right *= 2;
  for (const auto& [precision, roof] : flat) {
    Chart::Series line{fmt::format("roof: {}", precision), {}};
    if (slope > 0 && roof / slope > left) line.points = {{left, slope * left}, {roof / slope, roof}};
    if (line.points.empty()) line.points = {{left, roof}};
    line.points.emplace_back(std::max(right, line.points.back().first * 2), roof);
    c.series.push_back(std::move(line));
  }
  if (flat.empty() && slope > 0) c.series.push_back({"roof: memory", {{left, slope * left}, {right, slope * right}}});
  into.add(Part{std::move(c)});
}

void add_live_bytes(const std::vector<RowObject>& moments, Record& into) {
  if (moments.empty()) return;
  Chart c{"Live bytes over the step", "ms", "", Unit::bytes, false, {}, Chart::Kind::areas, Unit::ms};
  constexpr std::size_t most = 500;
  for (const Phase p : stacking) c.series.push_back({std::string(name_of(p)), {}});
  std::map<std::string, double> live;
  const auto series_of = [](const RowObject& m) { return text_at(m, "phase").empty() ? "device memory" : text_at(m, "phase"); };
  for (const RowObject& m : moments) series_named(c.series, series_of(m));  // another program's have no phase
  const double start = number_at(moments.front(), "at_ms");
  std::size_t top = 0;
  for (std::size_t i = 0; i < moments.size(); ++i)
    if (number_at(moments[i], "live_bytes") > number_at(moments[top], "live_bytes")) top = i;
  double standing = number_at(moments.front(), "live_bytes") - number_at(moments.front(), "bytes");
  if (standing > 0) {
    live["standing"] = standing;
    c.series.insert(c.series.begin(), {"standing", {}});
  }
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const RowObject& m = moments[i];
    live[series_of(m)] += number_at(m, "bytes");
    const std::size_t stretch = std::max<std::size_t>(1, moments.size() / most);
    const bool stands_before = i + 1 < moments.size() && number_at(moments[i + 1], "at_ms") == start;
    if ((i % stretch != 0 || stands_before) && i != top) continue;
    for (auto& s : c.series) {
      s.points.emplace_back(number_at(m, "at_ms") - start, std::max(0.0, live[s.name]));
      const double bytes = number_at(m, "bytes");
      s.names.push_back(s.name == series_of(m) ? fmt::format("{} {} {}, {} ({})", bytes < 0 ? "−" : "+", text_at(m, "name"),
                                                             text_at(m, "shape"), bytes_in_words(std::abs(bytes)), s.name)
                                               : "");
    }
  }
  std::erase_if(c.series,
                [](const auto& s) { return std::all_of(s.points.begin(), s.points.end(), [](const auto& p) { return p.second == 0; }); });
  c.marks.push_back(
      {fmt::format("peak {}", bytes_in_words(number_at(moments[top], "live_bytes"))), number_at(moments[top], "at_ms") - start, true});
  if (!c.series.empty()) into.add(Part{std::move(c)});
}

}  // namespace

void add_profile(const ReportRun& run, Record& into) {
  add_timeline(run.rows("timeline"), into);
  const bool of_modules = first_with_words(run.rows("modules"), {"module", "part"}) == std::string_view("module");
  add_bars(run.rows("modules"), of_modules ? "Time by module" : "Time by part", of_modules ? "module" : "part",
           {{"forward_ms", "forward"}, {"backward_ms", "backward"}, {"optimizer_ms", "optimiser"}}, Order::largest_first, into);
  add_bars(run.rows("work"), "Matmul against the rest", "phase",
           {{"matmul_ms", "matmul"},
            {"attention_ms", "fused attention"},
            {"softmax_ms", "softmax"},
            {"other_ms", "other"},
            {"idle_ms", "nothing runs"}},
           Order::as_they_come, into);
  add_bars(run.rows("kernels"), "Kernels by total time", "kernel", {{"ms", "ms"}}, Order::largest_first, into);
  add_shares(run.rows("attention"), into);
  add_roofline(run.rows("roofline"), into);
  add_live_bytes(run.rows("memory"), into);
}

}  // namespace headroom::studies
