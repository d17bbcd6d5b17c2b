// Several dry runs of one program side by side: as many as this machine has cores and room for. Their answers are those of runs one after the other.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "studies/forecast/run.h"

namespace headroom::studies {

// How many more runs of a program may go on at once, by what its first run took. Programs of several processes are run alone: these meet at a port, which
// each run would ask for.
int runs_at_once(const DryRun& first);

// Makes these runs, at most `at_once` of them at a time, in their order; `run` makes one. Progress is told by the calling thread, as of one run. Runs that are
// missing in the answer are for the caller to make alone: those that failed beside others, since two runs of a program can be in each other's way (a port,
// a file), and those that `stop` or a signal left unbegun. With `at_once` 1 all are missing.
std::vector<std::optional<DryRun>> run_side_by_side(const std::vector<DryRunAsked>& asked, int at_once, const std::function<bool()>& stop,
                                                    const std::function<DryRun(const DryRunAsked&)>& run);

}  // namespace headroom::studies
