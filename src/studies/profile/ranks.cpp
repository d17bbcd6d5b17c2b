#include "studies/profile/ranks.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/json.h"
#include "store/described_json.h"

namespace headroom::studies {

namespace {

using profile::Slice;
using profile::Span;
using profile::Timeline;

bool is_collective(const Timeline& t, const profile::Regions& p) {
  return p.cost_of >= 0 && t.marks[std::size_t(p.cost_of)].region.cost.link_bytes > 0;
}

// How long some of the spans cover, together. They are in order of their start.
std::int64_t covered_ns(const std::vector<Span>& spans) {
  std::int64_t sum = 0, until = 0;
  for (const Span& s : spans) {
    sum += std::max<std::int64_t>(0, s.end_ns - std::max(s.start_ns, until));
    until = std::max(until, s.end_ns);
  }
  return sum;
}

struct Split {  // the slices of a timeline
  std::vector<Span> work, collectives, all;
  double link_bytes = 0;
  std::int64_t waits_ns = 0;  // in which nothing ran, just before or after a collective: for another rank's word, which is no slice
};

Split split_of(const Timeline& t) {
  const auto places = profile::places_of(t.marks);
  Split s;
  for (const Slice& slice : t.slices) {
    const Span span{slice.start_ns, slice.end_ns};
    const bool collective = slice.mark >= 0 && is_collective(t, places[std::size_t(slice.mark)]);
    (collective ? s.collectives : s.work).push_back(span);
    s.all.push_back(span);
  }
  const auto next_to = [&](int slice) {
    return slice >= 0 && t.slices[std::size_t(slice)].mark >= 0 && is_collective(t, places[std::size_t(t.slices[std::size_t(slice)].mark)]);
  };
  for (const profile::Gap& gap : profile::gaps_of(t))
    if (next_to(gap.after) || next_to(gap.before)) s.waits_ns += gap.span.ns();
  std::set<std::pair<int, int>> counted;  // an op may be several kernels
  for (const Slice& slice : t.slices) {
    if (slice.mark < 0) continue;
    const profile::Regions& p = places[std::size_t(slice.mark)];
    if (is_collective(t, p) && counted.emplace(slice.step, p.cost_of).second)
      s.link_bytes += t.marks[std::size_t(p.cost_of)].region.cost.link_bytes;
  }
  return s;
}

}  // namespace

RankRow rank_row(const Timeline& t, int rank) {
  const Split s = split_of(t);
  const double steps = double(std::max<std::size_t>(1, t.steps.size()));
  RankRow row{.rank = rank};
  for (const Span& step : t.steps) row.step_ms += double(step.ns()) / 1e6 / steps;
  row.work_ms = double(covered_ns(s.work)) / 1e6 / steps;
  row.collectives_ms = double(covered_ns(s.collectives)) / 1e6 / steps;
  row.exposed_ms = double(covered_ns(s.all) + s.waits_ns) / 1e6 / steps - row.work_ms;
  row.link_bytes = s.link_bytes / steps;
  return row;
}

std::vector<LaneRow> lanes_of(const Timeline& t, int rank) {
  std::vector<LaneRow> all;
  if (t.steps.empty()) return all;
  const auto places = profile::places_of(t.marks);
  const std::int64_t start = t.steps.back().start_ns;
  std::map<int, std::size_t> last;  // by stream, its newest row
  for (const Slice& slice : t.slices) {
    if (slice.step + 1 != int(t.steps.size())) continue;
    const profile::Regions* p = slice.mark >= 0 ? &places[std::size_t(slice.mark)] : nullptr;
    const bool collective = p && is_collective(t, *p);
    LaneRow row{.rank = rank, .stream = slice.stream};
    row.start_ms = double(slice.start_ns - start) / 1e6;
    row.ms = double(slice.ns()) / 1e6;
    row.what = collective ? p->op : "work";
    if (collective && p->layer >= 0) row.layer = p->layer;
    if (collective) row.link_bytes = t.marks[std::size_t(p->cost_of)].region.cost.link_bytes;
    const auto before = last.find(slice.stream);
    if (!collective && before != last.end() && all[before->second].what == "work") {
      all[before->second].ms = row.start_ms + row.ms - all[before->second].start_ms;
      continue;
    }
    last[slice.stream] = all.size();
    all.push_back(std::move(row));
  }
  return all;
}

std::vector<RankRow> of_all_ranks(dist::Group& group, const RankRow& mine) {
  std::vector<RankRow> all;
  for (const auto& text : group.rendezvous().collect(json_of(mine).dump(), "their times"))
    all.push_back(read_described<RankRow>(parse_json<RowObject>(text, "a rank's row"), "a rank's row"));
  return all;
}

std::vector<LaneRow> of_all_ranks(dist::Group& group, const std::vector<LaneRow>& mine) {
  RowObject rows = RowObject::array();
  for (const LaneRow& row : mine) rows.push_back(json_of(row));
  std::vector<LaneRow> all;
  for (const auto& text : group.rendezvous().collect(rows.dump(), "their lanes"))
    for (const auto& row : parse_json<RowObject>(text, "a rank's lanes")) all.push_back(read_described<LaneRow>(row, "a rank's lane"));
  return all;
}

void write_lanes(profile::TraceWriter& trace, const std::vector<LaneRow>& lanes, int process, const std::string& phase) {
  std::set<std::pair<std::int64_t, std::int64_t>> named;
  constexpr int processes_apart = 100;  // a phase's own process, and one for each further rank
  for (const LaneRow& row : lanes) {
    if (row.rank == 0) continue;
    const int its = processes_apart * int(row.rank) + process;
    if (named.emplace(row.rank, -1).second) trace.name_track(its, -1, fmt::format("{}, rank {}", phase, row.rank));
    if (named.emplace(row.rank, row.stream).second) trace.name_track(its, int(row.stream), fmt::format("stream {}", row.stream));
    profile::TraceWriter::Args args;
    if (row.layer) args.emplace_back("layer", std::to_string(*row.layer));
    if (row.link_bytes > 0) args.emplace_back("bytes sent", fmt::format("{:.0f}", row.link_bytes));
    trace.slice(its, int(row.stream), row.what, row.link_bytes > 0 ? "collective" : "work", std::int64_t(row.start_ms * 1e6),
                std::int64_t(row.ms * 1e6), args);
  }
}

}  // namespace headroom::studies
