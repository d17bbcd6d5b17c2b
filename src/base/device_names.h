// Machines as people type them.
#pragma once
#include <string_view>

#include "base/device.h"

namespace headroom {

const Device* known_device(std::string_view typed);  // "h200", "H200", "RTX 4090" or "4090"; null: there is none of that name

}  // namespace headroom
