// A timeline as a trace: a track for the slices of each stream, tracks for modules and phases above them, and the bytes that live.
#include "instruments/profile/trace_timeline.h"

#include <fmt/format.h>

#include <algorithm>

namespace headroom::profile {

namespace {

constexpr int phase_track = 0, module_track = 1, first_stream = 10;

// Consecutive slices of one name are one bar of the track.
class Bars {
 public:
  Bars(TraceWriter& w, int process, int track, const char* category) : writer_(w), process_(process), track_(track), category_(category) {}
  void add(const std::string& name, const Slice& s) {
    if (name != name_ || s.step != step_) finish(), name_ = name, step_ = s.step, start_ = s.start_ns;
    end_ = s.end_ns;
  }
  void finish() {
    if (!name_.empty()) writer_.slice(process_, track_, name_, category_, start_, end_ - start_);
    name_.clear();
  }

 private:
  TraceWriter& writer_;
  int process_, track_;
  const char* category_;
  std::string name_;
  int step_ = -1;
  std::int64_t start_ = 0, end_ = 0;
};

}  // namespace

void write_trace(TraceWriter& w, const Timeline& t, int process, std::string_view name) {
  w.name_track(process, -1, name);
  w.name_track(process, phase_track, "phase");
  w.name_track(process, module_track, "module");
  const auto places = places_of(t.marks);
  Bars phases(w, process, phase_track, "phase"), modules(w, process, module_track, "module");
  std::vector<int> streams;
  for (const Slice& s : t.slices) {
    const bool seen = std::find(streams.begin(), streams.end(), s.stream) != streams.end();
    if (!seen) {
      streams.push_back(s.stream);
      w.name_track(process, first_stream + s.stream, s.kind == SliceKind::host ? "ops" : fmt::format("stream {}", s.stream));
    }
    if (s.mark < 0) {
      w.slice(process, first_stream + s.stream, s.kernel, name_of(s.kind), s.start_ns, s.ns());
      continue;
    }
    const Place& p = places[std::size_t(s.mark)];
    phases.add(std::string(name_of(p.phase)), s);
    modules.add(p.layer < 0 ? p.module : fmt::format("block {} {}", p.layer, p.module), s);
    TraceWriter::Args args{{"op", p.op}, {"part", p.place_name()}, {"phase", std::string(name_of(p.phase))}};
    if (p.layer >= 0) args.emplace_back("layer", std::to_string(p.layer));
    if (p.cost_of >= 0) {
      const Cost& cost = t.marks[std::size_t(p.cost_of)].region.cost;
      args.emplace_back("gflop of the op", fmt::format("{:.4g}", cost.flops / 1e9));
      args.emplace_back("bytes of the op", fmt::format("{:.0f}", cost.bytes));
    }
    w.slice(process, first_stream + s.stream, s.kernel, name_of(p.work), s.start_ns, s.ns(), args);
  }
  phases.finish(), modules.finish();
  for (const Moment& m : t.memory) w.counter(process, "bytes", m.at_ns, "live", double(m.live_bytes));
  w.flush();
}

}  // namespace headroom::profile
