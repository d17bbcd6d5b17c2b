// What can be changed in a program from outside, and what each change saves: dry runs of the same program, ranked.
#pragma once
#include "studies/forecast/forecast.h"

namespace headroom::studies {

struct Lever {
  std::string name, code, costs;
  std::vector<std::string> environment;  // NAME=value
  std::string observer;                  // the observer's word for it; empty: the environment is enough
  std::vector<std::string> program{};    // another command line; empty: the same
};
std::vector<Lever> levers_for(const std::vector<std::string>& program);

// What sets PyTorch's allocator, beside what the program's own settings say.
std::vector<std::string> with_allocator(const std::string& setting);

// Several at once.
Lever together(const std::vector<Lever>&);
std::vector<std::string> environment_of(const Lever&);

struct ForecastTryRow {
  std::string change;
  std::int64_t saves_bytes = 0;
  std::uint64_t needed_bytes = 0, peak_allocated_bytes = 0, peak_reserved_bytes = 0;
  std::optional<bool> fits{};
  std::string costs{}, code{};
  Status status = Status::ok;
  std::string why{};
};
void describe(Of<ForecastTryRow> auto& r, auto&& f) {
  using enum Role;
  using enum Unit;
  f(r.change, {.name = "change"});
  f(r.saves_bytes, {.name = "saves_bytes", .role = noted, .unit = bytes});
  f(r.needed_bytes, {.name = "needed_bytes", .role = measured, .unit = bytes, .show = Show::bar});
  f(r.fits, {.name = "fits", .role = measured});
  f(r.peak_allocated_bytes, {.name = "peak_allocated_bytes", .role = measured, .unit = bytes, .show = Show::detail});
  f(r.peak_reserved_bytes, {.name = "peak_reserved_bytes", .role = measured, .unit = bytes, .show = Show::detail});
  f(r.costs, {.name = "costs", .role = noted});
  f(r.code, {.name = "code", .role = noted, .show = Show::detail});
  f(r.status, {.name = "status", .role = measured, .show = Show::detail});
  f(r.why, {.name = "why", .role = noted, .show = Show::detail});
}

struct Tries {
  std::vector<ForecastTryRow> rows;
  bool stopped = false;  // Ctrl-C came before all of them were run
};
// Every lever alone, then those that save together, the cheapest first. `base`: the program as it is. `stopped`: Ctrl-C came already.
Tries tries_of(const Forecast&, const ForecastRow& base, const Host&, bool stopped = false);

// A table of what works, the code to write, and a line for what does not.
void add_tries(const Tries&, const ForecastRow& base, bool for_people, Record&);

}  // namespace headroom::studies
