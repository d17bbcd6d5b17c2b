// What the clock (dry/clock.h) goes by on a card: rates that were measured on it, or an H200's, scaled by the card's ceilings.
#pragma once
#include <optional>

#include "base/device.h"
#include "dry/rates.h"

namespace headroom::pytorch {

// `host_speed`: of the program's host, beside the one that was measured.
std::optional<dry::Rates> rates_of(const Device&,
                                   double host_speed = 1);  // none where the card's bandwidth or its rate of products is not known
std::string why_no_rates(const Device&);

}  // namespace headroom::pytorch
