// The milliseconds of a forecast: the clock's mean step (dry/clock.h), with an interval that says how far it can be trusted, where the time
// goes, and what limits it. Without a time there is a reason.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "dry/clock.h"
#include "pytorch/rates.h"
#include "studies/forecast/rows.h"

namespace headroom::studies {

struct ForecastTime {
  std::optional<double> ms{}, ms_low{}, ms_high{};
  std::string why;                     // no ms
  std::string left_out;                // a sentence about steps that are not in ms
  std::string limit;                   // the part that takes most of the step: "matrix products", "host", …
  std::string source;                  // where the rates come from
  double launches = 0, launch_us = 0;  // launches that the host issues in a step, and its time for each
  double tflops = 0;                   // rate of products and attention, over the step
  std::vector<ForecastTimeRow> parts;
  std::vector<ForecastLaunchRow> launches_of_step;
};
ForecastTime forecast_time(const dry::StepTimed&, const std::optional<dry::Rates>&, const Device&);

std::string in_words(const ForecastTime&);

}  // namespace headroom::studies
