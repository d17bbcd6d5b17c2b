// The study behind `headroom device`: describes this machine, and measures and keeps its ceilings.
#pragma once
#include "base/device.h"
#include "studies/life.h"

namespace headroom::studies {

Record device_record(const Device&);  // what is here, measuring nothing
Outcome device_study(const Device&, const Host&);
Record known_devices_record();

// What device_study kept last of this machine; none where nobody measured it. `store`: its file, empty for the user's own.
std::optional<Ceilings> kept_ceilings(const Device&, const std::string& store);
std::optional<double> kept_host_link(const Device&, const std::string& store);  // bytes/s one way, of a card

}  // namespace headroom::studies
