// headroom comm — what ranks say to each other, timed.
#include "base/error.h"
#include "cli/described_options.h"
#include "cli/options.h"
#include "cli/outcome.h"
#include "cli/progress.h"
#include "cli/ranks_options.h"
#include "studies/comm/comm_time.h"

namespace headroom::cli {

namespace {

struct CommAsked {
  studies::CommTime study;
  RanksOptions ranks;
  std::vector<std::int64_t> counts;
};

int run_comm(const CommAsked& a, const CLI::App& app, Common& common) {
  auto asked = a.ranks.asked();
  check(asked.ranks == 0 || a.counts.empty(), Code::bad_argument, "--counts takes the place of {}; give one of them", asked.option);
  if (!a.counts.empty()) asked.ranks = int(a.counts.front()), asked.option = "--counts";
  dist::Seat seat = find_seat(asked);
  check(seat.ranks > 1, Code::bad_argument, "a collective takes at least 2 ranks: give --gpus N or --ranks N, or --counts 2,3,4");
  std::vector<int> counts{seat.ranks};
  if (seat.start_others && !a.counts.empty()) counts.assign(a.counts.begin(), a.counts.end());  // else this is a rank of one of them

  studies::CommTime t = a.study;
  t.seed = common.seed;
  std::optional<Progress> progress(std::in_place, "comm", Elsewhere::nothing);
  studies::Host host = quiet_host("comm", common);
  host.progress = [&](double share, const std::string& doing) { progress->show(share, doing); };
  studies::CommStudy study(t, counts, host);
  for (const int count : counts) {
    seat.ranks = count;
    as_ranks(seat, app, common, [&](dist::Group* group) {
      study.run(*group, chosen_device(common, group));
      return yes;
    });
    if (study.stopped()) break;
  }
  progress.reset();
  if (common.silent) return study.stopped() ? failed : yes;
  return show(study.outcome(), common);
}

}  // namespace

RunCommand comm(CLI::App& app, Common& common) {
  auto a = std::make_shared<CommAsked>();
  add_ranks(app, a->ranks);
  add_value(app, a->counts, {.name = "counts", .about = "Several numbers of ranks, one after the other", .allowed = {2, 4096}});
  add_described(app, a->study);
  app.footer(
      "Examples:\n  headroom comm --device cpu --ranks 2 --bytes 1MB,10MB\n  headroom comm --gpus 2\n  headroom comm --device cuda "
      "--counts 2,4,8\n"
      "  mpirun -n 4 headroom comm --device cpu --backend mpi\n\n"
      "The best exchange is kept as this machine's link, which plan --gpus reads.\n"
      "Exit codes: 0 measured; 1 a value did not arrive, a rank ended, or Ctrl-C stopped it; 3 every size is out of memory.");
  return [a, &app, &common] { return run_comm(*a, app, common); };
}

}  // namespace headroom::cli
