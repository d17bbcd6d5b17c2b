// How fast a GPU's clocks run now, and what holds them back, from NVML: loaded from the driver when it is there, never required.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"

namespace headroom {

struct Clocks {
  int sm_mhz = 0, most_sm_mhz = 0, celsius = 0;
  double watts = 0, most_watts = 0;
  std::string driver;                  // its own version: "580.95.05"
  std::vector<std::string> held_back;  // why the clock is below its highest under load: "power limit", "heat", …
};

std::optional<Clocks> clocks_of(const Device&);  // for a device that is present; none without NVML

}  // namespace headroom
