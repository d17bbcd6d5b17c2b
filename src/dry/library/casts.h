// Whether gradients are recorded, as the program sees it.
#pragma once
#include <optional>

namespace headroom::dry {

// Autocast keeps 16-bit copies of weights and records their gradients, also where the program records none: in an evaluation. While it makes
// such a copy, this is what held before.
std::optional<bool> gradients_before_cast();

}  // namespace headroom::dry
