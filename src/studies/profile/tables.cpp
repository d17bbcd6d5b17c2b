#include "studies/profile/tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"

namespace headroom::studies {

using profile::Slice;
using profile::SliceKind;
using profile::Timeline;

namespace {

struct Use {  // what a key's slices take, over all steps
  double ns = 0, flops = 0, bytes = 0;
  std::int64_t count = 0, ops = 0;
  int example = -1;  // a slice
};

// Sums of the slices by key. The cost of a region counts once for each step, however many kernels it took.
template <class Key, class KeyOf>
std::map<Key, Use> summed(const Timeline& t, const std::vector<profile::Regions>& places, KeyOf&& key_of) {
  std::map<Key, Use> uses;
  std::set<std::pair<int, int>> counted;
  for (std::size_t i = 0; i < t.slices.size(); ++i) {
    const Slice& s = t.slices[i];
    static const profile::Regions unmarked;
    const profile::Regions& place = s.mark >= 0 ? places[std::size_t(s.mark)] : unmarked;
    Use& u = uses[key_of(s, place)];
    u.ns += double(s.ns());
    ++u.count;
    if (u.example < 0) u.example = int(i);
    if (place.cost_of < 0 || !counted.emplace(place.cost_of, s.step).second) continue;
    const Cost& cost = t.marks[std::size_t(place.cost_of)].region.cost;
    u.flops += cost.flops;
    u.bytes += cost.bytes;
    ++u.ops;
  }
  return uses;
}

template <class Key>
std::vector<std::pair<Key, Use>> by_time(const std::map<Key, Use>& uses) {
  std::vector<std::pair<Key, Use>> sorted(uses.begin(), uses.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  return sorted;
}

double steps_of(const Timeline& t) { return t.repeats > 0 ? t.repeats : std::max<double>(1, double(t.steps.size())); }
std::optional<double> rate(double amount, double ns, double unit) {
  return ns > 0 && amount > 0 ? std::optional(amount / ns * 1e9 / unit) : std::nullopt;
}
std::string phase_name(const profile::Regions& p) { return std::string(name_of(p.phase)); }

enum Column { forward, backward, optimizer, columns };
int column_of(Phase p) { return p == Phase::optimizer ? optimizer : p == Phase::backward ? backward : forward; }
std::optional<double> ms_or_none(double ns, double steps) { return ns > 0 ? std::optional(ns / steps / 1e6) : std::nullopt; }

std::string slice_name(const Timeline& t, const std::vector<profile::Regions>& places, int slice) {
  if (slice < 0) return "(the step's edge)";
  const Slice& s = t.slices[std::size_t(slice)];
  return s.mark >= 0 ? places[std::size_t(s.mark)].label() : s.kernel;
}

}  // namespace

double ProfileTables::steps() const { return steps_of(timeline); }

double ProfileTables::step_ms() const {
  double ns = 0;
  for (const auto& s : timeline.steps) ns += double(s.ns());
  return ns / steps_of(timeline) / 1e6;
}

// Steps that are parts of one whole (all forwards, then all backwards) vary each for itself.
std::optional<double> ProfileTables::step_ms_std() const {
  const std::size_t each = timeline.repeats > 0 ? std::size_t(timeline.repeats) : timeline.steps.size();
  if (each < 2 || timeline.steps.size() % each != 0) return std::nullopt;
  double variance = 0;
  for (std::size_t from = 0; from < timeline.steps.size(); from += each) {
    double sum = 0, squares = 0;
    for (std::size_t i = from; i < from + each; ++i) sum += double(timeline.steps[i].ns()) / 1e6;
    for (std::size_t i = from; i < from + each; ++i) squares += std::pow(double(timeline.steps[i].ns()) / 1e6 - sum / double(each), 2);
    variance += squares / double(each - 1);
  }
  return std::sqrt(variance);
}

double ProfileTables::covered() const {
  double idle = 0, all = 0;
  for (const auto& g : profile::gaps_of(timeline)) idle += double(g.span.ns());
  for (const auto& s : timeline.steps) all += double(s.ns());
  return all > 0 ? 1 - idle / all : 0;
}

std::vector<KernelTimeRow> ProfileTables::kernel_rows() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline), total = step_ms();
  std::vector<KernelTimeRow> rows;
  const auto uses = summed<std::string>(timeline, places, [](const Slice& s, const profile::Regions&) { return s.kernel; });
  for (const auto& [kernel, u] : by_time(uses)) {
    KernelTimeRow r;
    r.kernel = kernel;
    r.kind = profile::name_of(timeline.slices[std::size_t(u.example)].kind);
    r.count = double(u.count) / steps;
    r.ms = u.ns / steps / 1e6;
    r.share = r.ms / total;
    r.mean_us = u.ns / 1e3 / double(u.count);
    rows.push_back(std::move(r));
  }
  return rows;
}

Table ProfileTables::kernels() const { return table_of("kernels", "Kernels by time", kernel_rows()); }

Table ProfileTables::phases() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline), total = step_ms();
  std::vector<PhaseRow> rows;
  const auto uses = summed<std::string>(timeline, places, [](const Slice& s, const profile::Regions& p) {
    return s.mark < 0 ? std::string("outside the ops") : phase_name(p);
  });
  for (const auto& [phase, u] : by_time(uses)) {
    PhaseRow r;
    r.phase = phase;
    r.ms = u.ns / steps / 1e6;
    r.share = r.ms / total;
    r.tflops = rate(u.flops, u.ns, 1e12);
    r.bytes_per_s = rate(u.bytes, u.ns, 1);
    rows.push_back(std::move(r));
  }
  return table_of("phases", "Phases", rows);
}

Table ProfileTables::modules() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline), total = step_ms();
  std::vector<ModuleRow> rows;
  using Key = std::pair<std::string, std::string>;
  std::map<Key, std::array<double, columns>> by_phase;
  const auto key_of = [](const Slice& s, const profile::Regions& p) {
    return s.mark < 0 ? Key{"(none)", s.kernel} : Key{p.module, p.place_name()};
  };
  for (const Slice& s : timeline.slices) {
    const profile::Regions p = s.mark < 0 ? profile::Regions{} : places[std::size_t(s.mark)];
    by_phase[key_of(s, p)][std::size_t(column_of(p.phase))] += double(s.ns());
  }
  for (const auto& [key, u] : by_time(summed<Key>(timeline, places, key_of))) {
    const auto& ns = by_phase[key];
    ModuleRow r;
    r.module = key.first;
    r.part = key.second;
    r.forward_ms = ms_or_none(ns[forward], steps);
    r.backward_ms = ms_or_none(ns[backward], steps);
    r.optimizer_ms = ms_or_none(ns[optimizer], steps);
    r.ms = u.ns / steps / 1e6;
    r.share = r.ms / total;
    rows.push_back(std::move(r));
  }
  return table_of("modules", "Modules and their parts", rows);
}

Table ProfileTables::layers() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline);
  std::vector<LayerRow> rows;
  std::map<int, std::array<double, columns>> layers;
  for (const Slice& s : timeline.slices)
    if (s.mark >= 0 && places[std::size_t(s.mark)].layer >= 0)
      layers[places[std::size_t(s.mark)].layer][std::size_t(column_of(places[std::size_t(s.mark)].phase))] += double(s.ns());
  for (const auto& [layer, ns] : layers)
    rows.push_back({layer, ms_or_none(ns[forward], steps), ms_or_none(ns[backward], steps),
                    (ns[forward] + ns[backward] + ns[optimizer]) / steps / 1e6});
  return table_of("layers", "Blocks", rows);
}

WorkRow ProfileTables::work(const std::string& phase) const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline);
  std::array<double, work_names.size()> ns{};
  for (const Slice& s : timeline.slices) ns[std::size_t(s.mark < 0 ? Work::other : places[std::size_t(s.mark)].work)] += double(s.ns());
  const auto ms = [&](Work w) { return ns[std::size_t(w)] / steps / 1e6; };
  WorkRow r;
  r.phase = phase;
  r.ms = step_ms();
  r.matmul_ms = ms(Work::matmul);
  r.attention_ms = ms(Work::attention);
  r.softmax_ms = ms(Work::softmax);
  for (std::size_t w = 0; w < ns.size(); ++w)
    if (Work(w) != Work::matmul && Work(w) != Work::attention && Work(w) != Work::softmax) r.other_ms += ms(Work(w));
  r.idle_ms = (1 - covered()) * step_ms();
  r.matmul_share = r.matmul_ms / r.ms;
  return r;
}

Table ProfileTables::attention() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline);
  std::vector<AttentionPartRow> rows;
  const auto uses = summed<std::string>(timeline, places, [](const Slice&, const profile::Regions& p) -> std::string {
    if (p.work_of_op != Work::attention_parts && p.work_of_op != Work::attention) return "";
    if (p.work == Work::attention) return "products and softmax in one kernel";
    return p.part.empty() ? "between its parts" : p.work == Work::softmax ? "softmax" : "products (" + p.part + ")";
  });
  double ns = 0, flops = 0;
  for (const auto& [what, u] : uses)
    if (!what.empty()) {
      ns += u.ns;
      flops += u.flops;
    }
  for (const auto& [what, u] : by_time(uses))
    if (!what.empty() && ns > 0) {
      AttentionPartRow r;
      r.what = what;
      r.ms = u.ns / steps / 1e6;
      r.time_share = u.ns / ns;
      r.gflop = u.flops / steps / 1e9;
      if (flops > 0) r.flops_share = u.flops / flops;
      r.tflops = rate(u.flops, u.ns, 1e12);
      rows.push_back(std::move(r));
    }
  return table_of("attention", "Attention: softmax against its matmuls", rows);
}

Table ProfileTables::gaps() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline);
  std::vector<GapRow> rows;
  struct Sum {
    double ns = 0, longest = 0;
    int count = 0;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const auto& g : profile::gaps_of(timeline)) {
    Sum& s = sums[{slice_name(timeline, places, g.after), slice_name(timeline, places, g.before)}];
    s.ns += double(g.span.ns());
    s.longest = std::max(s.longest, double(g.span.ns()));
    ++s.count;
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Sum>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  for (const auto& [between, s] : sorted)
    rows.push_back({between.first, between.second, double(s.count) / steps, s.ns / steps / 1e6, s.longest / 1e3});
  return table_of("gaps", "Where nothing runs", rows);
}

// A roof is the lower of what the arithmetic and what the memory allows for an op of this intensity.
Table ProfileTables::roofline() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline);
  std::vector<RooflineRow> rows;
  using Key = std::pair<std::string, std::string>;
  const auto math_of = [&](Precision p) {
    if (p.dtype == DType::f32) p.math = precision.math;
    return p;
  };
  const auto uses = summed<Key>(timeline, places, [&](const Slice& s, const profile::Regions& p) {
    return s.mark < 0 || p.cost_of < 0 ? Key{}
                                       : Key{p.label(), std::string(name_of(p.work == Work::matmul ? math_of(p.precision) : p.precision))};
  });
  for (const auto& [key, u] : by_time(uses)) {
    if (key.first.empty() || u.ops == 0) continue;
    const double seconds = u.ns / 1e9, peak = ceilings.of(*precision_named(key.second)), copy = ceilings.copy_bytes_per_s;
    const double arithmetic = peak > 0 ? u.flops / peak : 0, traffic = copy > 0 ? u.bytes / copy : 0;
    const bool known = peak > 0 && copy > 0 && seconds > 0 && arithmetic + traffic > 0;
    const double fastest = std::max(arithmetic, traffic);
    RooflineRow r;
    r.op = key.first;
    r.precision = key.second;
    r.count = double(u.ops) / steps;
    r.ms = u.ns / steps / 1e6;
    r.gflop = u.flops / steps / 1e9;
    if (u.bytes > 0) r.intensity = u.flops / u.bytes;
    r.tflops = rate(u.flops, u.ns, 1e12);
    r.bytes_per_s = rate(u.bytes, u.ns, 1);
    if (known && fastest > 0) r.roof_tflops = u.flops / fastest / 1e12;
    if (known) {
      r.bound = arithmetic >= traffic ? "arithmetic" : "memory";
      r.roof_share = fastest / seconds;
    }
    rows.push_back(std::move(r));
  }
  return table_of("roofline", "Each op against its roof", rows);
}

}  // namespace headroom::studies
