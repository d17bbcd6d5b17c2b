// The study behind `headroom device`: describes this machine, and measures and keeps its ceilings and, where asked, its efficiencies.
#pragma once
#include "base/efficiency.h"
#include "studies/life.h"
#include "studies/step/words.h"

namespace headroom::studies {

struct DeviceAsked {
  double seconds = 1;  // for each ceiling
  int steps = 50;
  bool efficiencies = false;
  std::vector<Precision> precisions{};  // precisions of the steps; none: the usual ones
};
void describe(Of<DeviceAsked> auto& a, auto&& f) {
  f(a.seconds, {.name = "seconds"});
  f(a.steps, {.name = "steps"});
  f(a.efficiencies,
    {.name = "efficiencies", .about = "Also measure steps of small models, for a minute or two: forecasts then have an expected time"});
  f(a.precisions,
    {.name = "precision", .about = "Precisions of those steps [fp32,bf16; on a CPU fp32]", .choices = engine::trained_precisions});
}

Record device_record(const Device&);  // describes the machine without measuring
Outcome device_study(const Device&, const DeviceAsked&, const Host&);
Record known_devices_record();

// The last kept result of device_study for this machine; none if it was never measured. `store`: its file; empty: the user's own.
std::optional<Ceilings> kept_ceilings(const Device&, const std::string& store);
std::shared_ptr<const Efficiencies> kept_efficiencies(const Device&, const std::string& store);
std::optional<double> kept_host_link(const Device&, const std::string& store);  // bytes/s one way, of a card

}  // namespace headroom::studies
