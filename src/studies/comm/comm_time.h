// comm_time — what ranks say to each other, timed: every collective that training uses, over sizes and numbers of ranks; each checked for its
// values. The best exchange is kept as the machine's link.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "dist/backends.h"
#include "dist/group.h"
#include "studies/life.h"
#include "studies/status.h"

namespace headroom::studies {

enum class CommCall : std::uint8_t { exchange, gather, all_reduce, broadcast };
}  // namespace headroom::studies

namespace headroom {
template <>
inline constexpr auto names_of<studies::CommCall> = names<studies::CommCall>("exchange", "gather", "all-reduce", "broadcast");
}

namespace headroom::studies {

struct CommTime {
  std::vector<std::uint64_t> bytes{};  // none: usual_sizes
  std::vector<CommCall> calls{CommCall::exchange, CommCall::gather, CommCall::all_reduce, CommCall::broadcast};
  std::optional<dist::Backend> backend{};
  dist::Route route = dist::Route::automatic;
  int steps = 20, warmup = 3, threads = 0;
  std::uint64_t seed = 0;
};
void describe(Of<CommTime> auto& t, auto&& f) {
  f(t.bytes, {.name = "bytes",
              .unit = Unit::bytes,
              .about = "Sizes: what each rank exchanges with the others, or has in the end, in multiples of 256 B a rank "
                       "[1MB,10MB,100MB; on GPUs 1GB, too]"});
  f(t.calls, {.name = "calls", .about = "Collectives to time", .option = "--call"});
  f(t.backend, {.name = "backend", .about = "Transport [nccl on GPUs, shared on one machine, mpi]", .choices = dist::backend_words});
  f(t.route, {.name = "route", .about = "On GPUs: NCCL's kernels, copy engines, or by size"});
  f(t.steps, {.name = "steps", .about = "Measured calls", .allowed = {1, 1 << 20}});
  f(t.warmup, {.name = "warmup", .about = "Warm-up calls", .allowed = {0, 1 << 20}});
  f(t.threads,
    {.name = "threads", .about = "Threads of a rank on a CPU; 0: the cores divided by the ranks of this machine", .allowed = {0, 4096}});
  f(t.seed, {.name = "seed"});
}

struct CommRow {
  CommCall call{};
  std::int64_t ranks = 0, bytes = 0;
  dist::Backend backend{};
  std::string route;
  std::optional<double> time_ms, time_ms_std, median_ms, min_ms, bus_bytes_per_s;
  Status status = Status::ok;
  std::string why;
  std::int64_t steps = 0, warmup = 0, own_bytes = 0;
};
void describe(Of<CommRow> auto& r, auto&& f) {
  using enum Role;
  f(r.call, {.name = "call"});
  f(r.ranks, {.name = "ranks"});
  f(r.bytes, {.name = "bytes", .unit = Unit::bytes});
  f(r.backend, {.name = "backend"});
  f(r.route, {.name = "route", .role = noted});
  f(r.time_ms, {.name = "time_ms", .role = measured, .unit = Unit::ms});
  f(r.time_ms_std, {.name = "time_ms_std", .role = noted, .unit = Unit::ms, .show = Show::spread});
  f(r.median_ms, {.name = "median_ms", .role = noted, .unit = Unit::ms});
  f(r.min_ms, {.name = "min_ms", .role = noted, .unit = Unit::ms, .show = Show::detail});
  f(r.bus_bytes_per_s, {.name = "bus_bytes_per_s", .role = measured, .unit = Unit::bytes_per_s, .show = Show::bar});
  f(r.status, {.name = "status", .role = measured});
  f(r.why, {.name = "why", .role = noted, .show = Show::detail});
  f(r.steps, {.name = "steps", .role = noted, .show = Show::detail});
  f(r.warmup, {.name = "warmup", .role = noted, .show = Show::detail});
  f(r.own_bytes, {.name = "own_bytes", .role = noted, .unit = Unit::bytes, .show = Show::detail});
}

class CommStudy {
 public:
  CommStudy(const CommTime&, std::vector<int> counts, const Host&);
  // Called by every rank of a group, for one number of ranks after the other. Only the first rank keeps rows.
  void run(dist::Group&, const Device&);
  bool stopped() const { return stopped_; }
  Outcome outcome();  // on the first rank, at the end

 private:
  void keep(CommRow, bool first);
  std::size_t largest_within(std::size_t most, int ranks);
  CommRow row_before(const dist::Comm&, CommCall, int ranks, std::size_t bytes) const;

  CommTime t_;
  std::vector<int> counts_;
  Host host_;
  std::optional<Life> life_;
  std::vector<CommRow> rows_;
  std::vector<std::string> far_from_asked_;  // "1000 B between 2 ranks is 512 B"
  bool stopped_ = false, gpu_ = false;
};

// What a rank of this machine sends, while it receives as much, in bytes a second: by the best exchange of the newest finished run of comm.
std::optional<double> kept_link(const Device&, const std::string& store);

}  // namespace headroom::studies
