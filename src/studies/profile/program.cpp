#include "studies/profile/program.h"

#include <fmt/format.h>

#include <fstream>

#include "base/error.h"
#include "gpu/device.h"
#include "studies/forecast/check.h"
#include "studies/launch.h"
#include "studies/life.h"
#include "studies/scratch_folder.h"

namespace headroom::studies {

namespace {

std::string find_library() {
  const char* const name = "libheadroom_inject.so";
  const auto library = beside_program(name);
  check(!library.empty(), Code::unsupported,
        "profile: a program is profiled through {}, which this build lacks: it is in {}. Build where nvcc is found, or profile step or "
        "attention",
        name, places_beside_program());
  return library.string();
}

}  // namespace

ProgramRun run_profiled(const std::vector<std::string>& command, std::string library) {
  ProgramRun run;
  run.command = command;
  if (library.empty()) library = find_library();
  const ScratchFolder folder("profile", "headroom-profile", ScratchFolder::Orphans::go_on);
  std::vector<std::string> settings = listening(folder.path().string(), Observed::no);
  settings.insert(settings.end(), {"CUDA_INJECTION64_PATH=" + library, "NVTX_INJECTION64_PATH=" + library,
                                   "HEADROOM_PROFILE_FOLDER=" + folder.path().string()});
  const Ended ended = launch({.who = "profile",
                              .advice = "give step, attention, or -- and a program",
                              .command = command,
                              .settings = settings,
                              .stops_us = false});
  run.wall_s = ended.wall_s;
  run.exit_code = ended.exit_code;
  run.ended_by = ended.by;
  for (const auto& file : files_with(folder.path(), ".activity")) {
    std::ifstream in(file);
    run.logs.push_back(profile::read_activity(in));
  }
  if (cuda_device_count() > 0)
    if (const auto told = measured_told(folder.path().string(), command, cuda_device(0))) run.bytes = told->row;
  return run;
}

std::string keep_program(const ProgramRun& run, const std::string& store) {
  if (!run.bytes) return "";
  Life life({.store = store}, "profile", {{"program", run.command}}, run.bytes->device);
  life.keep(key_of(*run.bytes), json_of(*run.bytes));
  life.finish();
  return life.name();
}

}  // namespace headroom::studies
