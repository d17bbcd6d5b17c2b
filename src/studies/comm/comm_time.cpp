#include "studies/comm/comm_time.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/random.h"
#include "base/text.h"
#include "gpu/place.h"
#include "instruments/bench/bench.h"
#include "ops/gradient_sum/gradient_sum.h"
#include "report/described_table.h"

namespace headroom::studies {

namespace {

using dist::Call;
using dist::Comm;

constexpr std::size_t alignment = 256;    // every rank's part begins at a multiple
constexpr std::int64_t piece = 16 << 20;  // values that are made in one go: a tenth of a second and more on a CPU

struct Ranked {  // one size on this rank: two buffers, and what a call does with them
  Comm& comm;
  Place& place;
  const Device& device;
  Tensor a, b;  // FP32 [n], n divides by the ranks
  std::uint64_t seed;

  std::int64_t part() const { return a.count() / comm.ranks(); }
  Tensor part_of(const Tensor& whole, int i) const { return {whole.as<float>() + std::int64_t(i) * part(), DType::f32, {part()}}; }
  // Value i of what a rank sends.
  Random values_of(int rank, std::int64_t at_piece) const {
    return Random{seed}.stream(std::uint64_t(rank)).stream(std::uint64_t(at_piece));
  }
  float value(int rank, std::int64_t i) const { return values_of(rank, i / piece).normal(std::uint64_t(i % piece)); }

  void fill(const std::function<bool()>& stopped) const {
    for (std::int64_t at = 0; at < a.count() && !stopped(); at += piece)
      place.fill_normal({a.as<float>() + at, DType::f32, {std::min(piece, a.count() - at)}}, values_of(comm.rank(), at / piece));
  }
  void clear() const {
    if (place.on_gpu()) return place.fill_normal(a, Random{seed}, 0);
    std::memset(a.data, 0, a.bytes());
  }

  void run(CommCall call) {
    void* const s = place.stream();
    if (call == CommCall::exchange) return comm.exchange(a, b, s);
    if (call == CommCall::gather) return comm.gather(part_of(a, comm.rank()), b, s);
    if (call == CommCall::broadcast) return comm.broadcast(a, comm.ranks() - 1, s);
    Arena none(b.data, 0);
    Context ctx{.arena = none, .device = device, .threads = &place.threads(), .stream = s};
    comm.exchange(a, b, s);  // an all-reduce: the others' parts of this rank's shard, their sum in rank order, then all ranks' sums
    gradient_sum::add(part_of(b, 0), comm.ranks(), part(), part_of(a, comm.rank()), Gradient::overwrite, ctx);
    comm.gather(part_of(a, comm.rank()), a, s);
  }

  float expected(CommCall call, std::int64_t i) const {
    const int from = int(i / part());
    if (call == CommCall::exchange) return value(from, comm.rank() * part() + i % part());
    if (call == CommCall::gather) return value(from, i);
    if (call == CommCall::broadcast) return value(comm.ranks() - 1, i);
    float sum = value(0, i);
    for (int r = 1; r < comm.ranks(); ++r) sum += value(r, i);
    return sum;
  }

  // The first value that did not arrive, of some thousand looked at; the ends of every part are among them.
  std::string wrong(CommCall call) const {
    const Tensor& got = call == CommCall::exchange || call == CommCall::gather ? b : a;
    const std::int64_t looked = std::min<std::int64_t>(part(), 512);
    std::vector<float> values(static_cast<std::size_t>(looked));
    for (int p = 0; p < comm.ranks(); ++p)
      for (const std::int64_t from : {std::int64_t(0), (part() - looked) / 2, part() - looked}) {
        const std::int64_t first = std::int64_t(p) * part() + from;
        place.copy_out(values.data(), got.as<float>() + first, values.size() * sizeof(float));
        for (std::int64_t k = 0; k < looked; ++k)
          if (values[std::size_t(k)] != expected(call, first + k))
            return fmt::format("rank {}: value {} of {} is {}, not {}", comm.rank(), first + k, got.count(), values[std::size_t(k)],
                               expected(call, first + k));
      }
    return "";
  }
};

// Milliseconds of a call on this rank, once for every sample. All ranks take the same number, and all stop together: on a CPU one call can take
// seconds, so `stopped` is asked before each.
std::vector<double> times_of(Ranked& r, CommCall call, int samples, const std::function<bool()>& stopped) {
  std::vector<double> ms;
  if (!r.place.on_gpu()) {
    for (int i = 0; i < samples && !stopped(); ++i) {
      r.comm.barrier(nullptr);
      const auto start = std::chrono::steady_clock::now();
      r.run(call);
      ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    return ms;
  }
  const int calls = r.a.bytes() < (std::size_t(16) << 20) ? 50 : 10;  // between two events, recorded: no gap of the host is counted
  const Graph graph(r.place.queue(), [&] {
    for (int i = 0; i < calls; ++i) r.run(call);
  });
  Stopwatch watch;
  for (int i = 0; i < samples; ++i) {
    r.comm.barrier(r.place.stream());
    watch.start(r.place.queue());
    graph.launch(r.place.queue());
    watch.stop(r.place.queue());
    ms.push_back(double(watch.elapsed_ms()) / calls);
    r.comm.check_alive();
  }
  return ms;
}

Call in_dist(CommCall call) { return *names_of<Call>.named(names_of<CommCall>.of(call)); }
std::vector<std::uint64_t> usual_sizes(bool gpu) {
  std::vector<std::uint64_t> sizes{1'000'000, 10'000'000, 100'000'000};
  if (gpu) sizes.push_back(1'000'000'000);  // by cores it takes minutes
  return sizes;
}

double sent_by_a_rank(CommCall call, double bytes, int ranks) {
  if (call == CommCall::all_reduce) return dist::sent_bytes(Call::exchange, bytes, ranks) + dist::sent_bytes(Call::gather, bytes, ranks);
  return dist::sent_bytes(in_dist(call), bytes, ranks);
}

std::string route_of(const Comm& comm, CommCall call) {
  if (call != CommCall::all_reduce) return comm.route(in_dist(call));
  const std::string there = comm.route(Call::exchange), back = comm.route(Call::gather);
  return there == back ? there : fmt::format("{}; {}", there, back);
}

// What every rank says of one thing, joined: empty where all are content.
std::string said_by_all(dist::Group& group, const std::string& mine, const char* what) {
  for (const auto& s : group.rendezvous().collect(mine, what))
    if (!s.empty()) return s;
  return "";
}

std::vector<double> slowest_of_all(dist::Group& group, const std::vector<double>& mine) {
  std::string words;
  for (const double ms : mine) words += fmt::format("{} ", ms);
  std::vector<double> slowest(mine.size());
  for (const auto& s : group.rendezvous().collect(words, "their times")) {
    const char* at = s.c_str();
    for (double& x : slowest) {
      char* end = nullptr;
      x = std::max(x, std::strtod(at, &end));
      at = end;
    }
  }
  return slowest;
}

// Every rank has a part of as many bytes, which begins at a multiple of `alignment`.
std::size_t in_parts(std::uint64_t bytes, int ranks) {
  const std::size_t unit = alignment * std::size_t(ranks);
  return std::max(unit, std::size_t(bytes) / unit * unit);
}

// Two buffers on this rank, which every size uses in turn.
struct TwoBuffers {
  std::size_t apart;
  std::shared_ptr<void> memory;

  TwoBuffers(Comm& comm, std::size_t largest)
      : apart((largest + 4095) / 4096 * 4096), memory(largest > 0 ? comm.take(2 * apart) : nullptr) {}
  Ranked of(std::size_t bytes, Comm& comm, Place& place, const Device& device, std::uint64_t seed) const {
    const auto n = std::int64_t(bytes / sizeof(float));
    char* const at = static_cast<char*>(memory.get());
    return {comm, place, device, {at, DType::f32, {n}}, {at + apart, DType::f32, {n}}, seed};
  }
};

// Checks and times the row's call; false: it was stopped before that.
bool measure(CommRow& row, Ranked& r, const CommTime& asked, dist::Group& group, const std::function<bool()>& stopped) {
  r.fill(stopped);
  if (stopped()) return false;
  r.run(row.call);
  r.place.wait();
  row.why = said_by_all(group, r.wrong(row.call), "whether values arrived");
  if (!row.why.empty()) {
    row.status = Status::failed;
    return true;
  }
  r.clear();  // an all-reduce in place stays finite however often it is repeated
  for (int i = 0; i < asked.warmup && !stopped(); ++i) r.run(row.call);
  r.place.wait();
  const std::vector<double> mine = times_of(r, row.call, asked.steps, stopped);
  if (std::ssize(mine) < asked.steps) return false;
  const bench::Stats ms = bench::stats_of(slowest_of_all(group, mine));
  row.time_ms = ms.mean;
  row.time_ms_std = ms.spread();
  row.median_ms = ms.median;
  row.min_ms = ms.min;
  row.steps = ms.count;
  row.bus_bytes_per_s = sent_by_a_rank(row.call, double(row.bytes), int(row.ranks)) / (ms.median / 1e3);
  return true;
}

}  // namespace

CommStudy::CommStudy(const CommTime& t, std::vector<int> counts, const Host& host) : t_(t), counts_(std::move(counts)), host_(host) {}

void CommStudy::keep(CommRow row, bool first) {
  if (first) life_->keep(key_of(row), json_of(row));
  rows_.push_back(std::move(row));
}

void CommStudy::run(dist::Group& group, const Device& device) {
  const int ranks = group.ranks();
  gpu_ = device.kind == DeviceKind::cuda;
  check(gpu_ || t_.route == dist::Route::automatic, Code::bad_argument,
        "--route {}: routes are of GPUs; ranks on the CPU have one, leave --route out", names_of<dist::Route>.of(t_.route));
  if (t_.bytes.empty()) t_.bytes = usual_sizes(gpu_);
  if (group.first() && !life_) {
    RowObject settings = json_of(t_);
    settings["ranks"] = counts_;
    life_.emplace(host_, "comm", settings, device.name);
  }
  const auto comm = group.comm(device, t_.backend, t_.route);
  Place place(device, t_.threads > 0 ? t_.threads : std::max(1, available_cores() / group.rendezvous().local_ranks()));
  const auto most = std::size_t(double(group.memory_of_each(device)) * 0.45);  // what every rank can have twice
  const TwoBuffers buffers(*comm, largest_within(most, ranks));
  std::size_t done = 0;
  for (const CommCall call : t_.calls)
    for (const auto asked : t_.bytes) {
      if (stopped_ = group.stop(host_.stop()); stopped_) return;
      const std::size_t bytes = in_parts(asked, ranks);
      if (group.first())
        host_.progress(double(done++) / double(t_.calls.size() * t_.bytes.size()),
                       fmt::format("{} of {} between {} ranks", names_of<CommCall>.of(call), bytes_in_words(double(bytes)), ranks));
      CommRow row = row_before(*comm, call, ranks, bytes);
      if (bytes > most) {
        row.status = Status::oom;
        row.why = fmt::format("two buffers of {} on each rank, and {} can be had", bytes_in_words(double(bytes)),
                              bytes_in_words(double(2 * most)));
      } else {
        Ranked r = buffers.of(bytes, *comm, place, device, t_.seed);
        const bool slow = !place.on_gpu() && bytes >= (std::size_t(16) << 20);
        const auto stopped = [&] { return slow && (stopped_ = stopped_ || group.stop(host_.stop())); };
        if (!measure(row, r, t_, group, stopped)) return;
      }
      keep(std::move(row), group.first());
    }
}

// The largest size that every rank has room for; notes sizes that are far from what was asked.
std::size_t CommStudy::largest_within(std::size_t most, int ranks) {
  std::size_t largest = 0;
  for (const auto asked : t_.bytes) {
    const std::size_t bytes = in_parts(asked, ranks);
    if (bytes <= most) largest = std::max(largest, bytes);
    if (std::abs(double(bytes) / double(asked) - 1) > 0.01)
      far_from_asked_.push_back(
          fmt::format("{} between {} ranks is {}", bytes_in_words(double(asked)), ranks, bytes_in_words(double(bytes))));
  }
  return largest;
}

CommRow CommStudy::row_before(const dist::Comm& comm, CommCall call, int ranks, std::size_t bytes) const {
  CommRow row;
  row.call = call;
  row.ranks = ranks;
  row.bytes = std::int64_t(bytes);
  row.backend = comm.backend();
  row.route = route_of(comm, call);
  row.warmup = t_.warmup;
  row.own_bytes = std::int64_t(comm.own_bytes());
  return row;
}

Outcome CommStudy::outcome() {
  Outcome o;
  o.record.add(Part{table_of("comm", "Collectives between ranks", rows_)});
  o.record.add(Part{Note{
      "time_ms is the mean of the slowest rank's samples ± their standard deviation, median_ms their median. Bytes are of the buffer that "
      "a rank exchanges with the others, or has in the end. bus_bytes_per_s is what a rank sends, while it receives as much, in "
      "median_ms: (N − 1)/N of the bytes for an exchange and a gather, twice that for an "
      "all-reduce (an exchange, our sum in rank order, a gather), all of "
      "them for a broadcast."}});
  if (!far_from_asked_.empty())
    o.record.add(Part{Note{fmt::format("A size is a multiple of {} bytes for each rank, so {}.", alignment, joined(far_from_asked_))}});
  if (gpu_) o.record.add(Part{Note{"Timed between events around a recorded graph of 50 calls, 10 from 16 MiB on."}});
  const auto is = [](Status status) { return [status](const CommRow& r) { return r.status == status; }; };
  const bool failed = stopped_ || std::any_of(rows_.begin(), rows_.end(), is(Status::failed));
  const bool none = !rows_.empty() && std::none_of(rows_.begin(), rows_.end(), is(Status::ok));
  o.answer = failed ? Answer::failed : none ? Answer::no : Answer::yes;
  const std::size_t asked = counts_.size() * t_.calls.size() * t_.bytes.size();
  if (life_) o.said = stopped_ ? life_->stopped(fmt::format("after {} of {} rows", rows_.size(), asked), "") : life_->name();
  if (!stopped_ && life_) o.life.emplace(std::move(*life_));
  return o;
}

std::optional<double> kept_link(const Device& d, const std::string& store) {
  const auto results = results_if_any(store);
  for (const StoredRun& run : results ? results->runs() : std::vector<StoredRun>()) {
    if (run.command != "comm" || run.machine != d.name || run.finished.empty()) continue;
    std::optional<double> best;
    for (const RowObject& object : row_objects(*results, run.id)) {
      const auto row = read_described<CommRow>(object, "results: a collective");
      if (row.call == CommCall::exchange && row.bus_bytes_per_s) best = std::max(best.value_or(0), *row.bus_bytes_per_s);
    }
    if (best) return best;
  }
  return {};
}

}  // namespace headroom::studies
