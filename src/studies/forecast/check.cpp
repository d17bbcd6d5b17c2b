#include "studies/forecast/check.h"

#include <cstdlib>

#include "base/error.h"
#include "base/text.h"
#include "dry/settings.h"
#include "gpu/device.h"
#include "studies/launch.h"
#include "studies/scratch_folder.h"

namespace headroom::studies {

namespace {

constexpr const char* listening_library = "libheadroom_listen.so";

std::string before_old(const char* variable, const std::string& first) {
  const char* const old = std::getenv(variable);
  return fmt::format("{}={}{}{}", variable, first, old && *old ? ":" : "", old ? old : "");
}

}  // namespace

std::vector<std::string> listening(const std::string& folder, Observed observed, std::int64_t steps) {
  const auto library = beside_program(listening_library);
  if (library.empty()) return {};
  std::vector<std::string> settings{before_old("LD_PRELOAD", library.string()), fmt::format("{}={}", dry::folder_variable, folder)};
  const auto observer = beside_program("headroom_observer");
  if (observed == Observed::no || observer.empty()) {
    settings.emplace_back("HEADROOM_LISTEN=peaks");
  } else {
    settings.push_back(fmt::format("{}={}", dry::observer_variable, observer.string()));
    settings.push_back(fmt::format("HEADROOM_DRY_STEPS={}", steps));
    settings.emplace_back("HEADROOM_DRY_VALUES=0");
  }
  return settings;
}

std::optional<Told> measured_told(const std::string& folder, const std::vector<std::string>& program, const Device& device) {
  std::vector<ProcessStory> stories;
  for (const dry::Process& process : dry::read_record(folder))
    if (ProcessStory story = story_of(process); !story.cards.empty()) stories.push_back(std::move(story));
  if (stories.empty()) return std::nullopt;
  Told t;
  t.device = device;
  t.room = room_of_program(device, std::nullopt, int(stories.size()), RunBy::pytorch);
  t.row.program = as_typed_in_a_shell(program);
  t.row.device = device.name;
  t.row.memory_bytes = t.room.memory_bytes;
  t.row.source = "measured";
  fill(t, stories);
  t.row.fits = true;
  return t;
}

Told check_on_card(const Forecast& a, const Told& dry, const ProgramOutput& output) {
  const ScratchFolder folder("forecast", "headroom-forecast", ScratchFolder::Orphans::end);
  const auto settings = listening(folder.path().string(), Observed::yes, dry.row.steps.value_or(1 << 30));
  check(!settings.empty(), Code::unsupported, "--check needs {}, which is in {}", listening_library, places_beside_program());
  const Ended ended = launch({.who = "forecast",
                              .advice = "activate the environment that has it, or give its path",
                              .command = a.program,
                              .settings = settings,
                              .output = output,
                              .mark_of_left_over = folder.path().string()});
  auto t = measured_told(folder.path().string(), a.program, cuda_device(0));
  check(t.has_value(), Code::io, "--check: the program ended with exit code {} and allocated nothing on the card", ended.exit_code);
  t->row.host_bytes = std::uint64_t(ended.host_peak_bytes);
  t->stopped = ended.asked;
  if (ended.exit_code != 0) {
    t->row.status = Status::failed;
    t->row.why = t->ended = fmt::format("exit code {}", ended.exit_code);
  }
  return *std::move(t);
}

std::vector<ForecastCheckRow> check_rows(const Told& dry, const Told& measured) {
  std::vector<ForecastCheckRow> rows;
  const auto add = [&](const std::string& what, std::uint64_t forecast, std::uint64_t truth) {
    ForecastCheckRow& row = rows.emplace_back();
    row.what = what;
    row.forecast_bytes = forecast;
    row.measured_bytes = truth;
    if (truth > 0) row.off = double(forecast) / double(truth) - 1;
  };
  add("peak allocated", dry.row.peak_allocated_bytes, measured.row.peak_allocated_bytes);
  add("peak reserved", dry.row.peak_reserved_bytes, measured.row.peak_reserved_bytes);
  if (dry.row.step_allocated_bytes && measured.row.step_allocated_bytes)
    add("last step's peak", *dry.row.step_allocated_bytes, *measured.row.step_allocated_bytes);
  for (const ForecastPhaseRow& p : dry.accounts.front().phases)
    for (const ForecastPhaseRow& m : measured.accounts.front().phases)
      if (p.phase == m.phase) add(p.phase, p.peak_allocated_bytes, m.peak_allocated_bytes);
  return rows;
}

}  // namespace headroom::studies
