// How many devices take a step together, and what each of them holds of the weights, their gradients and the optimiser's state.
// Each trains on its own sequences. Forecasts know all of these; a step is run by one device.
#pragma once
#include <cstdint>
#include <string_view>

#include "base/described.h"

namespace headroom::engine {

enum class Sharding : std::uint8_t {  // each shards what the one before does, and more
  none,                               // every rank holds everything; gradients are summed over the ranks before the update
  optimizer,                          // moments, and master weights that have a copy in the compute type (ZeRO-1)
  gradients,                          // also gradients: a block's are whole only while its backward runs (ZeRO-2)
  everything,                         // also weights: a block's are whole only while it runs (ZeRO-3, FSDP)
};

}  // namespace headroom::engine

namespace headroom {
template <>
inline constexpr auto names_of<engine::Sharding> = names<engine::Sharding>("none", "optimizer", "gradients", "everything");
}

namespace headroom::engine {

constexpr std::string_view name_of(Sharding s) { return names_of<Sharding>.of(s); }

struct Ranks {
  int count = 1;
  Sharding sharding = Sharding::none;
};

}  // namespace headroom::engine
