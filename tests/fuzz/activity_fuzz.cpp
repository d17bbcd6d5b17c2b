// What libheadroom_inject.so left behind, whole or cut off: read to slices and ranges that make sense, and shown in every format.
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "report/render.h"
#include "studies/profile/program.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headroom;
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  studies::ProgramRun run;
  run.command = {"fuzzed"}, run.wall_s = 1;
  run.logs.push_back(profile::read_activity(in));
  const auto& log = run.logs[0];
  for (std::size_t i = 0; i < log.slices.size(); ++i) {
    const auto& s = log.slices[i];
    if (s.ns() < 0 || s.mark >= int(log.ranges.size()) || (i > 0 && s.start_ns < log.slices[i - 1].start_ns)) std::abort();
  }
  for (const bool for_people : {false, true})
    for (const Format f : {Format::text, Format::json, Format::csv}) render(studies::program_record(run, for_people), f);
  return 0;
}
