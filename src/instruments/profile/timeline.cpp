#include "instruments/profile/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace headroom::profile {

std::string_view name_of(SliceKind k) {
  constexpr std::array<std::string_view, 4> names = {"host", "kernel", "copy", "fill"};
  return names[std::size_t(k)];
}

std::vector<Regions> places_of(const std::vector<Mark>& marks) {
  std::vector<Regions> places;
  add_places(places, marks);
  return places;
}

void add_places(std::vector<Regions>& places, const std::vector<Mark>& marks) {
  const std::size_t first = places.size();
  places.resize(marks.size());
  std::vector<bool> has_parts(marks.size() - first, false);
  for (std::size_t i = first; i < marks.size(); ++i)
    if (marks[i].region.kind == Region::Kind::part && marks[i].parent >= int(first)) has_parts[std::size_t(marks[i].parent) - first] = true;
  for (std::size_t i = first; i < marks.size(); ++i) {
    const Region& r = marks[i].region;
    Regions& p = places[i];
    if (marks[i].parent >= 0) p = places[std::size_t(marks[i].parent)];
    p.phase = r.phase;
    if (r.name.layer >= 0) p.layer = r.name.layer;
    if (r.kind == Region::Kind::module) {
      p.module = r.name.text;
      continue;
    }
    const bool outermost = marks[i].parent < 0 || marks[std::size_t(marks[i].parent)].region.kind == Region::Kind::module;
    if (outermost) p.op = r.name.text, p.work_of_op = r.work;
    if (r.kind == Region::Kind::part) p.part = r.name.text;
    if (outermost || r.kind == Region::Kind::part) {
      p.work = r.work;
      p.precision = r.precision;
      p.cost_of = has_parts[i - first] ? -1 : int(i);
    }
  }
}

std::string Regions::place_name() const {
  if (!part.empty()) return part;
  if (module == "optimiser" || module == "embedding") return module;
  switch (work) {
    case Work::norm: return "norms";
    case Work::loss: return "loss";
    case Work::rotary: return "rotary positions";
    case Work::residual: return "residual";
    case Work::attention:
    case Work::attention_parts: return "attention core";
    case Work::matmul: return module == "attention" ? "projections" : module.empty() ? op : module;
    default: return module.empty() ? op : module;
  }
}

namespace {

int step_at(const std::vector<Span>& steps, std::int64_t ns) {  // the step of a moment on the same clock
  const auto after = std::upper_bound(steps.begin(), steps.end(), ns, [](std::int64_t t, const Span& s) { return t < s.start_ns; });
  return std::max(0, int(after - steps.begin()) - 1);
}

}  // namespace

std::vector<Slice> host_slices(const std::vector<Mark>& marks, const std::vector<Regions>& places, const std::vector<Span>& steps,
                               std::int64_t origin, std::size_t first) {
  std::vector<Slice> slices;
  const auto add = [&](int mark, std::int64_t from, std::int64_t to) {
    if (to > from)
      slices.push_back(
          {places[std::size_t(mark)].label(), SliceKind::host, mark, step_at(steps, from - origin), from - origin, to - origin});
  };
  for (std::size_t i = first; i < marks.size(); ++i) {
    const Mark& m = marks[i];
    const bool outermost = m.parent < 0 || marks[std::size_t(m.parent)].region.kind == Region::Kind::module;
    if (m.region.kind != Region::Kind::op || !outermost) continue;
    std::int64_t at = m.begin_ns;
    for (std::size_t j = i + 1; j < marks.size() && marks[j].begin_ns < m.end_ns; ++j) {
      if (marks[j].parent != int(i) || marks[j].region.kind != Region::Kind::part) continue;
      add(int(i), at, marks[j].begin_ns);
      add(int(j), marks[j].begin_ns, marks[j].end_ns);
      at = marks[j].end_ns;
    }
    add(int(i), at, m.end_ns);
  }
  return slices;
}

namespace {

Moment moment_of(const Entry& e, bool take, std::int64_t at, std::int64_t live) {
  std::string shape;
  for (int d = 0; d < e.shape.rank; ++d) shape += fmt::format("{}{}", d ? "x" : "", e.shape[d]);
  return {at, live, (take ? 1 : -1) * std::int64_t(e.taken), e.name.full(), shape, e.phase};
}

}  // namespace

std::vector<Moment> standing_before(const Ledger& ledger, std::size_t first, std::int64_t at) {
  std::vector<bool> stands(ledger.entries().size(), false);
  for (std::size_t e = 0; e < first; ++e) stands[ledger.events()[e].entry] = ledger.events()[e].take;
  std::vector<Moment> moments;
  std::int64_t live = 0;
  for (std::size_t i = 0; i < stands.size(); ++i)
    if (stands[i]) moments.push_back(moment_of(ledger.entries()[i], true, at, live += std::int64_t(ledger.entries()[i].taken)));
  return moments;
}

std::vector<Moment> memory_of(const Ledger& ledger, std::size_t first, std::size_t last,
                              const std::vector<std::pair<std::uint32_t, std::int64_t>>& when) {
  std::vector<Moment> moments;
  std::int64_t at = when.empty() ? 0 : when.front().second;
  auto next = when.begin();
  for (std::size_t e = first; e < last; ++e) {
    while (next != when.end() && next->first <= e) at = std::max(at, (next++)->second);
    const auto& event = ledger.events()[e];
    moments.push_back(moment_of(ledger.entries()[event.entry], event.take, at, std::int64_t(event.live)));
  }
  return moments;
}

std::vector<Gap> gaps_of(const Timeline& t) {
  std::vector<Gap> gaps;
  std::size_t i = 0;
  for (std::size_t s = 0; s < t.steps.size(); ++s) {
    std::int64_t covered = t.steps[s].start_ns;
    int last = -1;
    while (i < t.slices.size() && t.slices[i].step < int(s)) ++i;
    for (; i < t.slices.size() && t.slices[i].step == int(s); ++i) {
      const Slice& slice = t.slices[i];
      if (slice.start_ns > covered) gaps.push_back({last, int(i), {covered, slice.start_ns}});
      if (slice.end_ns > covered) {
        covered = slice.end_ns;
        last = int(i);
      }
    }
    if (covered < t.steps[s].end_ns) gaps.push_back({last, -1, {covered, t.steps[s].end_ns}});
  }
  return gaps;
}

}  // namespace headroom::profile
