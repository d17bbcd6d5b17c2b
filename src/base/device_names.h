// Machines as people type them.
#pragma once
#include <string>
#include <string_view>

#include "base/device.h"

namespace headroom {

const Device* known_device(std::string_view typed);    // "h200", "H200", "RTX 4090" or "4090"; null: no device has that name
const Device* known_as(std::string_view driver_says);  // "NVIDIA H100 80GB HBM3", or a name in the store; null: not known
std::string name_by_driver(const Device&);             // a known card's, else the device's name

}  // namespace headroom
