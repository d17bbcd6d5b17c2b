// A program run for real, with a library that only listens to PyTorch's allocator: the truth beside its forecast, by the same names.
#pragma once
#include "studies/forecast/forecast.h"

namespace headroom::studies {

// Variables for a program that is only listened to, so that it writes its record into the folder. Nothing where the library is not there.
// Observed: phases, lines and steps too, and it ends after so many steps; else its peaks alone, and nothing of it changes.
enum class Observed : std::uint8_t { no, yes };
std::vector<std::string> listening(const std::string& folder, Observed, std::int64_t steps = 0);

// What a program that was listened to took of the card; nothing where it did not use PyTorch's allocator.
std::optional<Told> measured_told(const std::string& folder, const std::vector<std::string>& program, const Device&);

// Runs it here, on as many steps as the forecast walked. There is a card; an Error where there is no such library.
Told check_on_card(const Forecast&, const Told& dry, const ProgramOutput&);

struct ForecastCheckRow {
  std::string what;
  std::uint64_t forecast_bytes = 0, measured_bytes = 0;
  std::optional<double> off{};
};
void describe(Of<ForecastCheckRow> auto& r, auto&& f) {
  using enum Role;
  f(r.what, {.name = "what"});
  f(r.forecast_bytes, {.name = "forecast_bytes", .role = measured, .unit = Unit::bytes});
  f(r.measured_bytes, {.name = "measured_bytes", .role = measured, .unit = Unit::bytes});
  f(r.off, {.name = "off", .role = noted, .unit = Unit::share});
}
std::vector<ForecastCheckRow> check_rows(const Told& dry, const Told& measured);

}  // namespace headroom::studies
