// A run as a row of a list of runs.
#pragma once
#include "report/described_table.h"

namespace headroom::studies {

struct RunRow {
  Value run;
  std::optional<std::string> command{}, machine{};
  std::int64_t rows = 0;
  std::optional<std::string> started{}, finished{}, version{};
  Value settings{};
};
void describe(Of<RunRow> auto& r, auto&& f) {
  using enum Role;
  f(r.run, {.name = "run"});
  f(r.command, {.name = "command", .role = noted});
  f(r.machine, {.name = "machine", .role = noted});
  f(r.rows, {.name = "rows", .role = noted});
  f(r.started, {.name = "started", .role = noted});
  f(r.finished, {.name = "finished", .role = noted});
  f(r.version, {.name = "version", .role = noted});
  f(r.settings, {.name = "settings", .role = noted, .show = Show::detail});
}

inline constexpr const char* cut_short = "cut short";  // a run that did not finish

}  // namespace headroom::studies
