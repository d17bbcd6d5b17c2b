#include "instruments/profile/trace_timeline.h"

#include <fmt/format.h>

#include <algorithm>

namespace headroom::profile {

namespace {

constexpr int phase_track = 0, module_track = 1, first_stream = 10, most_lanes = 16;

}  // namespace

void TimelineTrace::Bar::add(const std::string& name, const Slice& s) {
  if (name != name_ || s.step != step_) {
    finish();
    name_ = name;
    step_ = s.step;
    start_ = end_ = s.start_ns;
  }
  end_ = std::max(end_, s.end_ns);
}

void TimelineTrace::Bar::finish() {
  const std::int64_t from = std::max(start_, until_);
  if (!name_.empty() && from < end_) writer_.slice(process_, track_, name_, category_, from, end_ - from);
  until_ = std::max(until_, end_);
  name_.clear();
}

TimelineTrace::TimelineTrace(TraceWriter& w, int process, std::string_view name)
    : writer_(w), process_(process), phases_(w, process, phase_track, "phase"), modules_(w, process, module_track, "module") {
  w.name_track(process, -1, name);
  w.name_track(process, phase_track, "phase");
  w.name_track(process, module_track, "module");
}

TimelineTrace::~TimelineTrace() {
  phases_.finish();
  modules_.finish();
  writer_.flush();
}

void TimelineTrace::add(const std::vector<Mark>& marks, const std::vector<Regions>& places, const Slice& s) {
  const int lane = streams_[s.stream].lane_of(s.start_ns, s.end_ns), track = first_stream + s.stream * most_lanes + lane % most_lanes;
  if (named_.insert(track).second)
    writer_.name_track(process_, track,
                       s.kind == SliceKind::host ? "ops" : fmt::format("stream {}{}", s.stream, lane > 0 ? ", beside" : ""));
  if (s.mark < 0) return writer_.slice(process_, track, s.kernel, name_of(s.kind), s.start_ns, s.ns());
  const Regions& p = places[std::size_t(s.mark)];
  phases_.add(std::string(name_of(p.phase)), s);
  modules_.add(p.layer < 0 ? p.module : fmt::format("block {} {}", p.layer, p.module), s);
  TraceWriter::Args args{{"op", p.op}, {"part", p.place_name()}, {"phase", std::string(name_of(p.phase))}};
  if (p.layer >= 0) args.emplace_back("layer", std::to_string(p.layer));
  if (p.cost_of >= 0) {
    const Cost& cost = marks[std::size_t(p.cost_of)].region.cost;
    args.emplace_back("gflop of the op", fmt::format("{:.4g}", cost.flops / 1e9));
    args.emplace_back("bytes of the op", fmt::format("{:.0f}", cost.bytes));
  }
  writer_.slice(process_, track, s.kernel, name_of(p.work), s.start_ns, s.ns(), args);
}

void TimelineTrace::add(const Moment& m) { writer_.counter(process_, "bytes", m.at_ns, "live", double(m.live_bytes)); }

void write_trace(TraceWriter& w, const Timeline& t, int process, std::string_view name) {
  TimelineTrace trace(w, process, name);
  const auto places = places_of(t.marks);
  for (const Slice& s : t.slices) trace.add(t.marks, places, s);
  for (const Moment& m : t.memory) trace.add(m);
}

}  // namespace headroom::profile
