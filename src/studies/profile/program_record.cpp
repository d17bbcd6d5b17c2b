// What a profiled program did, as tables and as a trace.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "instruments/profile/trace.h"
#include "studies/profile/program.h"
#include "studies/profile/program_rows.h"

namespace headroom::studies {

using profile::ActivityLog;
using profile::Range;
using profile::Slice;

namespace {

constexpr std::size_t programs_shown = 15;
constexpr int letters_for_people = 72, letters_of_two = 48;  // a name alone in its row; one of two
constexpr int most_streams = 1000, most_lanes = 16;          // a trace has at most so many of a device, and of a stream
constexpr double pause_ns = 1e7;  // a longer wait is not for the next launch: start-up, a graph made ready, input

struct Wait {  // between two slices of one device
  const Slice *after, *before;
  double ns() const { return double(before->start_ns - after->end_ns); }
  bool is_pause() const { return ns() >= pause_ns; }
};

// Devices from their first slice to their last, summed: kernels on several streams of one count once.
struct Occupied {
  double busy_ns = 0, span_ns = 0, paused_ns = 0;
  std::vector<Wait> waits;
};

Occupied occupied(const std::vector<Slice>& slices) {
  Occupied o;
  std::map<int, std::pair<const Slice*, const Slice*>> devices;  // the first slice of each, and the one that ended last
  for (const Slice& s : slices) {
    auto& [first, last] = devices[s.step];
    if (!first) first = &s;
    if (last && s.start_ns > last->end_ns) o.waits.push_back({last, &s});
    if (!last || s.end_ns > last->end_ns) last = &s;
  }
  for (const auto& [device, ends] : devices) o.span_ns += double(ends.second->end_ns - ends.first->start_ns);
  o.busy_ns = o.span_ns;
  for (const Wait& w : o.waits) {
    o.busy_ns -= w.ns();
    o.paused_ns += w.is_pause() ? w.ns() : 0;
  }
  return o;
}

std::string shown(const std::string& kernel, bool for_people, int letters = letters_for_people) {
  return for_people ? shortened(profile::short_name(kernel), letters) : kernel;
}
std::string shown_text(const std::string& text, bool for_people) { return for_people ? shortened(text, letters_for_people) : text; }

template <class Key, class KeyOf>
std::vector<std::pair<Key, std::vector<const Slice*>>> grouped(const std::vector<Slice>& slices, KeyOf&& key_of) {
  std::map<Key, std::vector<const Slice*>> groups;
  for (const Slice& s : slices) groups[key_of(s)].push_back(&s);
  std::vector<std::pair<Key, std::vector<const Slice*>>> sorted(groups.begin(), groups.end());
  const auto ns = [](const auto& group) {
    std::int64_t sum = 0;
    for (const Slice* s : group.second) sum += s->ns();
    return sum;
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) { return ns(a) > ns(b); });
  return sorted;
}

double sum_ns(const std::vector<const Slice*>& slices) {
  double ns = 0;
  for (const Slice* s : slices) ns += double(s->ns());
  return ns;
}

Table kernels_of(const ActivityLog& log, double all_ns, bool for_people) {
  std::vector<ProgramKernelRow> rows;
  for (const auto& [name, slices] : grouped<std::string>(log.slices, [](const Slice& s) { return s.kernel; })) {
    if (for_people && rows.size() == programs_shown) break;
    std::int64_t bytes = 0;
    for (const Slice* s : slices) bytes += s->bytes;
    const double ns = sum_ns(slices);
    ProgramKernelRow& row = rows.emplace_back();
    row.kernel = shown(name, for_people);
    row.kind = name_of(slices[0]->kind);
    row.count = std::int64_t(slices.size());
    row.ms = ns / 1e6;
    row.share = ns / all_ns;
    row.mean_us = ns / 1e3 / double(slices.size());
    if (bytes > 0) row.bytes = bytes;
  }
  return table_of("kernels", "Kernels, copies and fills by time", rows);
}

std::string path_of(const ActivityLog& log, int range) {  // "step / forward"
  std::string path;
  for (; range >= 0; range = log.ranges[std::size_t(range)].parent)
    path.insert(0, log.ranges[std::size_t(range)].name + (path.empty() ? "" : " / "));
  return path;
}

Table phases_of(const ActivityLog& log, double all_ns, bool for_people) {
  std::vector<ProgramPhaseRow> rows;
  std::map<std::string, std::pair<std::int64_t, double>> on_host;
  for (std::size_t r = 0; r < log.ranges.size(); ++r) {
    auto& [count, ns] = on_host[path_of(log, int(r))];
    ++count;
    ns += double(log.ranges[r].end_ns - log.ranges[r].start_ns);
  }
  for (const auto& [path, slices] : grouped<std::string>(log.slices, [&](const Slice& s) { return path_of(log, s.mark); })) {
    const auto host = on_host.find(path);
    ProgramPhaseRow& row = rows.emplace_back();
    row.phase = path.empty() ? "(outside every range)" : shown_text(path, for_people);
    row.ms = sum_ns(slices) / 1e6;
    row.share = sum_ns(slices) / all_ns;
    row.kernels = std::int64_t(slices.size());
    if (host == on_host.end()) continue;
    row.count = host->second.first;
    row.host_ms = host->second.second / 1e6;
    on_host.erase(host);
  }
  for (const auto& [path, host] : on_host)
    rows.push_back({.phase = shown_text(path, for_people), .count = host.first, .host_ms = host.second / 1e6});
  return table_of("phases", "NVTX ranges", rows);
}

Table gaps_of(const Occupied& o, bool for_people) {
  struct Sum {
    double ns = 0, longest = 0;
    std::int64_t count = 0;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const Wait& w : o.waits) {
    if (w.is_pause()) continue;
    Sum& sum = sums[{w.after->kernel, w.before->kernel}];
    sum.ns += w.ns();
    sum.longest = std::max(sum.longest, w.ns());
    ++sum.count;
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Sum>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  std::vector<ProgramGapRow> rows;
  for (const auto& [between, s] : sorted) {
    if (for_people && rows.size() == programs_shown / 2) break;
    rows.push_back({.after = shown(between.first, for_people, letters_of_two),
                    .before = shown(between.second, for_people, letters_of_two),
                    .count = s.count,
                    .ms = s.ns / 1e6,
                    .longest_us = s.longest / 1e3});
  }
  return table_of("gaps", "Where the GPU waits, below 10 ms at a time", rows);
}

Table pauses_of(const ActivityLog& log, const Occupied& o, bool for_people) {
  std::vector<Wait> pauses;
  for (const Wait& w : o.waits)
    if (w.is_pause()) pauses.push_back(w);
  std::stable_sort(pauses.begin(), pauses.end(), [](const Wait& a, const Wait& b) { return a.ns() > b.ns(); });
  std::vector<PauseRow> rows;
  for (const Wait& w : pauses) {
    if (for_people && rows.size() == programs_shown / 2) break;
    rows.push_back({.at_ms = double(w.after->end_ns - log.loaded_ns) / 1e6,
                    .ms = w.ns() / 1e6,
                    .after = shown(w.after->kernel, for_people, letters_of_two),
                    .before = shown(w.before->kernel, for_people, letters_of_two)});
  }
  return table_of("pauses", "Pauses: 10 ms and longer, the longest first", rows);
}

Table memory_of(const ActivityLog& log) {
  std::vector<ProgramMomentRow> rows;
  for (const auto& m : log.memory)
    rows.push_back({.at_ms = double(m.at_ns - log.loaded_ns) / 1e6, .live_bytes = m.live_bytes, .bytes = m.bytes, .name = m.name});
  return table_of("memory", "Device memory, allocated and freed", rows);
}

Table timeline_of(const ActivityLog& log) {
  std::vector<ProgramSliceRow> rows;
  for (const Slice& s : log.slices) {
    ProgramSliceRow& row = rows.emplace_back();
    row.start_ms = double(s.start_ns - log.loaded_ns) / 1e6;
    row.ms = double(s.ns()) / 1e6;
    row.kernel = s.kernel;
    row.kind = name_of(s.kind);
    if (s.mark >= 0) row.phase = path_of(log, s.mark);
    row.device = s.step;
    row.stream = s.stream;
    if (s.bytes > 0) row.bytes = s.bytes;
  }
  return table_of("timeline", "Timeline", rows);
}

void add_log(Record& r, const ActivityLog& log, double wall_s, bool for_people) {
  if (!log.refusal.empty()) return void(r.add(Part{Note{"Nothing was recorded: " + log.refusal + "."}}));
  if (!for_people) r.add(Part{timeline_of(log)});
  double all_ns = 0;
  for (const Slice& s : log.slices) all_ns += double(s.ns());
  const Occupied o = occupied(log.slices);
  const double running_ns = o.span_ns - o.paused_ns;
  r.add("activities", std::int64_t(log.slices.size())).add("gpu_ms", all_ns / 1e6, Unit::ms);
  r.add("busy_ms", o.busy_ns / 1e6, Unit::ms).add("pauses_ms", o.paused_ns / 1e6, Unit::ms);
  r.add("busy_share", o.span_ns > 0 ? Value(o.busy_ns / o.span_ns) : Value(), Unit::share);
  r.add("busy_share_between_pauses", running_ns > 0 ? Value(o.busy_ns / running_ns) : Value(), Unit::share);
  r.add("overhead_ms", log.overhead_ns / 1e6, Unit::ms).add("overhead_share", log.overhead_ns / 1e9 / wall_s, Unit::share);
  const auto peak = std::max_element(log.memory.begin(), log.memory.end(), [](auto& a, auto& b) { return a.live_bytes < b.live_bytes; });
  if (peak != log.memory.end())
    r.add("peak_bytes", peak->live_bytes, Unit::bytes).add("peak_at_ms", double(peak->at_ns - log.loaded_ns) / 1e6, Unit::ms);
  if (!log.slices.empty()) {
    r.add(Part{kernels_of(log, all_ns, for_people)});
    if (!log.ranges.empty()) r.add(Part{phases_of(log, all_ns, for_people)});
    r.add(Part{gaps_of(o, for_people)});
    if (o.paused_ns > 0) r.add(Part{pauses_of(log, o, for_people)});
  }
  if (!for_people) r.add(Part{memory_of(log)});
  if (log.ended_ns == 0)
    r.add(Part{Note{"The program did not end normally. This shows what it did until about a tenth of a second before."}});
  if (log.strange_lines > 0)
    r.add(Part{Note{fmt::format("{} of the recording could not be read and {} left out.", counted(std::uint64_t(log.strange_lines), "line"),
                                log.strange_lines == 1 ? "was" : "were")}});
}

}  // namespace

Record program_record(const ProgramRun& run, bool for_people) {
  Record all{"", shown_text(as_typed_in_a_shell(run.command), for_people), {}};
  all.add("command", as_typed_in_a_shell(run.command)).add("exit_code", std::int64_t(run.exit_code)).add("wall_s", run.wall_s);
  if (!run.ended_by.empty()) all.add("ended_by", run.ended_by);
  if (run.bytes) {
    all.add("peak_allocated_bytes", std::int64_t(run.bytes->peak_allocated_bytes), Unit::bytes);
    all.add("peak_reserved_bytes", std::int64_t(run.bytes->peak_reserved_bytes), Unit::bytes);
    if (!for_people) all.add(Part{table_of("rows", "", std::vector{*run.bytes})});
  }
  std::size_t shown_logs = 0;
  for (const ActivityLog& log : run.logs) {
    if (log.slices.empty() && log.memory.empty() && log.refusal.empty() && run.logs.size() > 1) continue;
    Record one{
        ++shown_logs == 1 ? "" : fmt::format("process_{}", shown_logs), shown_logs == 1 ? "" : fmt::format("Process {}", shown_logs), {}};
    add_log(one, log, run.wall_s, for_people);
    if (shown_logs > 1) {
      all.add(Part{std::move(one)});
      continue;
    }
    for (Part& p : one.parts) all.add(std::move(p));
  }
  if (shown_logs == 0) return all.add(Part{Note{"The program did not use CUDA."}});
  all.add(Part{Note{"overhead_ms is CUPTI's own time for recording; calls that launch are also a little slower.", false}});
  return all;
}

void write_program_trace(const std::string& file, const ProgramRun& run) {
  profile::TraceWriter w(file);
  int process = 0;
  for (const ActivityLog& log : run.logs) {
    w.name_track(++process, -1, as_typed_in_a_shell(run.command));
    const auto since = [&](std::int64_t ns) { return ns - log.loaded_ns; };
    std::map<std::pair<int, int>, profile::Lanes> streams;
    std::set<int> named;
    const auto name = [&](int track, const std::string& words) {
      if (named.insert(track).second) w.name_track(process, track, words);
    };
    for (const Slice& s : log.slices) {
      const int lane = streams[{s.step, s.stream}].lane_of(s.start_ns, s.end_ns);
      const int track = ((1 + s.step) * most_streams + s.stream % most_streams) * most_lanes + lane % most_lanes;
      name(track, fmt::format("GPU {} stream {}{}", s.step, s.stream, lane > 0 ? ", beside" : ""));
      profile::TraceWriter::Args args;
      if (s.mark >= 0) args.emplace_back("phase", path_of(log, s.mark));
      if (s.bytes > 0) args.emplace_back("bytes", std::to_string(s.bytes));
      w.slice(process, track, s.kernel, name_of(s.kind), since(s.start_ns), s.ns(), args);
    }
    std::map<std::uint32_t, int> threads;
    for (const Range& r : log.ranges) {
      const int track = threads.try_emplace(r.thread, int(threads.size())).first->second;
      name(track, fmt::format("NVTX ranges of thread {}", r.thread));
      w.slice(process, track, r.name, "range", since(r.start_ns), r.end_ns - r.start_ns);
    }
    for (const auto& m : log.memory) w.counter(process, "device memory", since(m.at_ns), "live", double(m.live_bytes));
  }
  w.close();
}

}  // namespace headroom::studies
