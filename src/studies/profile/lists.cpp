// The long tables of a profile: every slice, every allocation and its end, what is allocated at the peak.
#include <algorithm>

#include "base/text.h"
#include "studies/profile/tables.h"

namespace headroom::studies {

Table ProfileTables::timeline_rows() const {
  const auto places = places_of(timeline.marks);
  std::vector<SliceRow> rows;
  rows.reserve(timeline.slices.size());
  for (const profile::Slice& s : timeline.slices) {
    SliceRow r;
    r.start_ms = double(s.start_ns) / 1e6;
    r.ms = double(s.ns()) / 1e6;
    r.kernel = s.kernel;
    r.stream = s.stream;
    r.step = s.step;
    if (s.mark >= 0) {
      const profile::Regions& p = places[std::size_t(s.mark)];
      r.op = p.op;
      r.part = p.place_name();
      r.phase = name_of(p.phase);
      if (!p.module.empty()) r.module = p.module;
      if (p.layer >= 0) r.layer = p.layer;
    }
    rows.push_back(std::move(r));
  }
  return table_of("timeline", "Timeline", rows);
}

Table ProfileTables::memory() const {
  std::vector<MomentRow> rows;
  for (const auto& m : timeline.memory)
    rows.push_back({double(m.at_ns) / 1e6, m.live_bytes, m.bytes, m.name, m.shape, std::string(name_of(m.phase))});
  return table_of("memory", "Bytes over the last step", rows);
}

Table at_peak_table(const std::vector<Entry>& standing, std::size_t most) {
  std::vector<StandingRow> rows;
  std::vector<Entry> sorted = standing;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) { return a.taken > b.taken; });
  for (const Entry& e : sorted) {
    if (rows.size() == most) break;
    std::vector<std::string> dims;
    for (int d = 0; d < e.shape.rank; ++d) dims.push_back(std::to_string(e.shape[d]));
    rows.push_back({e.name.full(), joined(dims, "x"), std::string(name_of(e.dtype)), std::int64_t(e.bytes), std::string(name_of(e.phase))});
  }
  return table_of("at_peak", "Allocated at the peak", rows);
}

}  // namespace headroom::studies
