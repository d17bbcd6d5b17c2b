// profile_program — starts any CUDA program with libheadroom_inject.so, passes its output and exit code through, and reads what its
// GPU did: kernels, copies, NVTX ranges as phases, memory allocated and freed.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "instruments/profile/activity_file.h"
#include "report/record.h"
#include "studies/forecast/rows.h"

namespace headroom::studies {

struct ProgramRun {
  std::vector<std::string> command;
  int exit_code = 0;     // the program's own; 128 + signal when one ended it
  std::string ended_by;  // a signal's name, or empty
  double wall_s = 0;
  std::vector<profile::ActivityLog> logs;  // one for each process of it that used CUDA
  std::optional<ForecastRow> bytes{};      // PyTorch's allocator's, by the names of a forecast; none: it was not recorded
};

// `library`: libheadroom_inject.so; empty: found beside this program, or where it was installed. An Error says what was not found.
ProgramRun run_profiled(const std::vector<std::string>& command, std::string library = "");

// Keeps the measured bytes beside the forecasts of the same program; nothing where there are none. The run's name, to be said.
std::string keep_program(const ProgramRun&, const std::string& store);

Record program_record(const ProgramRun&, bool for_people);
void write_program_trace(const std::string& file, const ProgramRun&);

}  // namespace headroom::studies
