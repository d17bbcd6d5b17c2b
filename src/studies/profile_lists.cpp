// The long tables of a profile: every slice, every take and give, who stood at the peak.
#include <algorithm>

#include "base/text.h"
#include "studies/profile_tables.h"

namespace headroom::studies {

Table ProfileTables::timeline_rows() const {
  const auto places = places_of(timeline.marks);
  Table t{"timeline",
          "Timeline",
          {{"start_ms"}, {"ms"}, {"kernel"}, {"op"}, {"part"}, {"module"}, {"layer"}, {"phase"}, {"stream"}, {"step"}},
          {}};
  for (const profile::Slice& s : timeline.slices) {
    const profile::Place p = s.mark < 0 ? profile::Place{} : places[std::size_t(s.mark)];
    t.add({double(s.start_ns) / 1e6, double(s.ns()) / 1e6, s.kernel, s.mark < 0 ? Value() : Value(p.op),
           s.mark < 0 ? Value() : Value(p.place_name()), p.module.empty() ? Value() : Value(p.module),
           p.layer < 0 ? Value() : Value(std::int64_t(p.layer)), s.mark < 0 ? Value() : Value(std::string(name_of(p.phase))),
           std::int64_t(s.stream), std::int64_t(s.step)});
  }
  return t;
}

Table ProfileTables::memory() const {
  Table t{"memory", "Bytes over the last step", {{"at_ms"}, {"live_bytes", Unit::bytes}, {"bytes"}, {"name"}, {"shape"}, {"phase"}}, {}};
  for (const auto& m : timeline.memory)
    t.add({double(m.at_ns) / 1e6, m.live_bytes, m.bytes, m.name, m.shape, std::string(name_of(m.phase))});
  return t;
}

Table at_peak_table(const std::vector<Entry>& standing, std::size_t most) {
  Table t{"at_peak", "Who stands at the peak", {{"name"}, {"shape"}, {"dtype"}, {"bytes", Unit::bytes, Show::bar}, {"phase"}}, {}};
  std::vector<Entry> sorted = standing;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) { return a.taken > b.taken; });
  for (const Entry& e : sorted) {
    if (t.rows.size() == most) break;
    std::vector<std::string> dims;
    for (int d = 0; d < e.shape.rank; ++d) dims.push_back(std::to_string(e.shape[d]));
    t.add({e.name.full(), joined(dims, "x"), std::string(name_of(e.dtype)), std::int64_t(e.bytes), std::string(name_of(e.phase))});
  }
  return t;
}

}  // namespace headroom::studies
