#include "studies/profile_tables.h"

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

struct Use {  // of time by whatever a key stands for, over all steps
  double ns = 0, flops = 0, bytes = 0;
  std::int64_t count = 0, ops = 0;
  int example = -1;  // a slice
};

// Sums of the slices by key. The cost of a region counts once for each step, however many kernels it took.
template <class Key, class KeyOf>
std::map<Key, Use> summed(const Timeline& t, const std::vector<profile::Place>& places, KeyOf&& key_of) {
  std::map<Key, Use> uses;
  std::set<std::pair<int, int>> counted;
  for (std::size_t i = 0; i < t.slices.size(); ++i) {
    const Slice& s = t.slices[i];
    static const profile::Place nobody;
    const profile::Place& place = s.mark >= 0 ? places[std::size_t(s.mark)] : nobody;
    Use& u = uses[key_of(s, place)];
    u.ns += double(s.ns()), ++u.count;
    if (u.example < 0) u.example = int(i);
    if (place.cost_of < 0 || !counted.emplace(place.cost_of, s.step).second) continue;
    const Cost& cost = t.marks[std::size_t(place.cost_of)].region.cost;
    u.flops += cost.flops, u.bytes += cost.bytes, ++u.ops;
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
Value rate(double amount, double ns, double unit) { return ns > 0 && amount > 0 ? Value(amount / ns * 1e9 / unit) : Value(); }
std::string phase_name(const profile::Place& p) { return std::string(name_of(p.phase)); }

enum Column { forward, backward, optimizer, columns };
int column_of(Phase p) { return p == Phase::optimizer ? optimizer : p == Phase::backward ? backward : forward; }
Value ms_or_none(double ns, double steps) { return ns > 0 ? Value(ns / steps / 1e6) : Value(); }

std::string slice_name(const Timeline& t, const std::vector<profile::Place>& places, int slice) {
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

Table ProfileTables::kernels() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline), total = step_ms();
  Table t{"kernels",
          "Kernels by time",
          {{"kernel"}, {"kind", Unit::none, Show::detail}, {"count"}, {"ms", Unit::ms}, {"share", Unit::share, Show::bar}, {"mean_us"}},
          {}};
  const auto uses = summed<std::string>(timeline, places, [](const Slice& s, const profile::Place&) { return s.kernel; });
  for (const auto& [kernel, u] : by_time(uses)) {
    const double ms = u.ns / steps / 1e6;
    t.add({kernel, std::string(profile::name_of(timeline.slices[std::size_t(u.example)].kind)), double(u.count) / steps, ms, ms / total,
           u.ns / 1e3 / double(u.count)});
  }
  return t;
}

Table ProfileTables::phases() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline), total = step_ms();
  Table t{"phases",
          "Phases",
          {{"phase"}, {"ms", Unit::ms}, {"share", Unit::share, Show::bar}, {"tflops", Unit::tflops}, {"bytes_per_s", Unit::bytes_per_s}},
          {}};
  const auto uses = summed<std::string>(timeline, places, [](const Slice& s, const profile::Place& p) {
    return s.mark < 0 ? std::string("outside the ops") : phase_name(p);
  });
  for (const auto& [phase, u] : by_time(uses))
    t.add({phase, u.ns / steps / 1e6, u.ns / steps / 1e6 / total, rate(u.flops, u.ns, 1e12), rate(u.bytes, u.ns, 1)});
  return t;
}

Table ProfileTables::modules() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline), total = step_ms();
  Table t{"modules",
          "Modules and their parts",
          {{"module"},
           {"part"},
           {"forward_ms", Unit::ms},
           {"backward_ms", Unit::ms},
           {"optimizer_ms", Unit::ms},
           {"ms", Unit::ms},
           {"share", Unit::share, Show::bar}},
          {}};
  using Key = std::pair<std::string, std::string>;
  std::map<Key, std::array<double, columns>> by_phase;
  const auto key_of = [](const Slice& s, const profile::Place& p) {
    return s.mark < 0 ? Key{"(none)", s.kernel} : Key{p.module, p.place_name()};
  };
  for (const Slice& s : timeline.slices) {
    const profile::Place p = s.mark < 0 ? profile::Place{} : places[std::size_t(s.mark)];
    by_phase[key_of(s, p)][std::size_t(column_of(p.phase))] += double(s.ns());
  }
  for (const auto& [key, u] : by_time(summed<Key>(timeline, places, key_of))) {
    const auto& ns = by_phase[key];
    t.add({key.first, key.second, ms_or_none(ns[forward], steps), ms_or_none(ns[backward], steps), ms_or_none(ns[optimizer], steps),
           u.ns / steps / 1e6, u.ns / steps / 1e6 / total});
  }
  return t;
}

Table ProfileTables::layers() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline);
  Table t{"layers", "Blocks", {{"layer"}, {"forward_ms", Unit::ms}, {"backward_ms", Unit::ms}, {"ms", Unit::ms, Show::bar}}, {}};
  std::map<int, std::array<double, columns>> layers;
  for (const Slice& s : timeline.slices)
    if (s.mark >= 0 && places[std::size_t(s.mark)].layer >= 0)
      layers[places[std::size_t(s.mark)].layer][std::size_t(column_of(places[std::size_t(s.mark)].phase))] += double(s.ns());
  for (const auto& [layer, ns] : layers)
    t.add({std::int64_t(layer), ms_or_none(ns[forward], steps), ms_or_none(ns[backward], steps),
           (ns[forward] + ns[backward] + ns[optimizer]) / steps / 1e6});
  return t;
}

Table ProfileTables::work() const {
  return {"work",
          "Matmul against everything else",
          {{"phase"},
           {"ms", Unit::ms},
           {"matmul_ms", Unit::ms},
           {"attention_ms", Unit::ms},
           {"softmax_ms", Unit::ms},
           {"other_ms", Unit::ms},
           {"idle_ms", Unit::ms},
           {"matmul_share", Unit::share, Show::bar}},
          {}};
}

void ProfileTables::add_work(Table& t, const std::string& phase) const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline);
  std::array<double, 4> ns{};
  for (const Slice& s : timeline.slices) ns[std::size_t(s.mark < 0 ? Work::other : places[std::size_t(s.mark)].work)] += double(s.ns());
  const auto ms = [&](Work w) { return ns[std::size_t(w)] / steps / 1e6; };
  t.add({phase, step_ms(), ms(Work::matmul), ms(Work::attention), ms(Work::softmax), ms(Work::other), (1 - covered()) * step_ms(),
         ms(Work::matmul) / step_ms()});
}

Table ProfileTables::attention() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline);
  Table t{"attention",
          "Attention: softmax against its matmuls",
          {{"what"},
           {"ms", Unit::ms},
           {"time_share", Unit::share, Show::bar},
           {"gflop"},
           {"flops_share", Unit::share, Show::bar},
           {"tflops", Unit::tflops}},
          {}};
  const auto uses = summed<std::string>(timeline, places, [](const Slice&, const profile::Place& p) -> std::string {
    if (!p.op.starts_with("attention.plain") && p.work != Work::attention) return "";
    if (p.work == Work::attention) return "products and softmax in one kernel";
    return p.part.empty() ? "between its parts" : p.work == Work::softmax ? "softmax" : "products (" + p.part + ")";
  });
  double ns = 0, flops = 0;
  for (const auto& [what, u] : uses)
    if (!what.empty()) ns += u.ns, flops += u.flops;
  for (const auto& [what, u] : by_time(uses))
    if (!what.empty() && ns > 0)
      t.add({what, u.ns / steps / 1e6, u.ns / ns, u.flops / steps / 1e9, flops > 0 ? Value(u.flops / flops) : Value(),
             rate(u.flops, u.ns, 1e12)});
  return t;
}

Table ProfileTables::gaps() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline);
  Table t{"gaps", "Where nothing runs", {{"after"}, {"before"}, {"count"}, {"ms", Unit::ms, Show::bar}, {"longest_us"}}, {}};
  struct Sum {
    double ns = 0, longest = 0;
    int count = 0;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const auto& g : profile::gaps_of(timeline)) {
    Sum& s = sums[{slice_name(timeline, places, g.after), slice_name(timeline, places, g.before)}];
    s.ns += double(g.span.ns()), s.longest = std::max(s.longest, double(g.span.ns())), ++s.count;
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Sum>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  for (const auto& [between, s] : sorted)
    t.add({between.first, between.second, double(s.count) / steps, s.ns / steps / 1e6, s.longest / 1e3});
  return t;
}

// A roof is the lower of what the arithmetic and what the memory allows for an op of this intensity.
Table ProfileTables::roofline() const {
  const auto places = places_of(timeline.marks);
  const double steps = steps_of(timeline);
  Table t{"roofline",
          "Each op against its roof",
          {{"op"},
           {"precision"},
           {"count"},
           {"ms", Unit::ms},
           {"gflop"},
           {"intensity"},
           {"tflops", Unit::tflops},
           {"bytes_per_s", Unit::bytes_per_s},
           {"roof_tflops", Unit::tflops, Show::detail},
           {"bound"},
           {"roof_share", Unit::share, Show::bar}},
          {}};
  using Key = std::pair<std::string, std::string>;
  const auto math_of = [&](Precision p) {
    if (p.dtype == DType::f32) p.math = precision.math;
    return p;
  };
  const auto uses = summed<Key>(timeline, places, [&](const Slice& s, const profile::Place& p) {
    return s.mark < 0 || p.cost_of < 0 ? Key{}
                                       : Key{p.label(), std::string(name_of(p.work == Work::matmul ? math_of(p.precision) : p.precision))};
  });
  for (const auto& [key, u] : by_time(uses)) {
    if (key.first.empty() || u.ops == 0) continue;
    const double seconds = u.ns / 1e9, peak = ceilings.of(*precision_named(key.second)), copy = ceilings.copy_bytes_per_s;
    const double arithmetic = peak > 0 ? u.flops / peak : 0, traffic = copy > 0 ? u.bytes / copy : 0;
    const bool known = peak > 0 && copy > 0 && seconds > 0 && arithmetic + traffic > 0;
    const double fastest = std::max(arithmetic, traffic);
    t.add({key.first, key.second, double(u.ops) / steps, u.ns / steps / 1e6, u.flops / steps / 1e9,
           u.bytes > 0 ? Value(u.flops / u.bytes) : Value(), rate(u.flops, u.ns, 1e12), rate(u.bytes, u.ns, 1),
           known && fastest > 0 ? Value(u.flops / fastest / 1e12) : Value(),
           !known ? Value() : Value(std::string(arithmetic >= traffic ? "arithmetic" : "memory")),
           known ? Value(fastest / seconds) : Value()});
  }
  return t;
}

}  // namespace headroom::studies
