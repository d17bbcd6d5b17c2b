// How many devices take a step together, and what each of them holds of the weights, their gradients and the optimiser's state.
// Each trains on its own sequences. Forecasts know all of these; a step is run by one device.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom::engine {

enum class Sharding : std::uint8_t {  // each shards what the one before does, and more
  none,                               // every rank holds everything; gradients are summed over the ranks before the update
  optimizer,                          // moments, and master weights that have a copy in the compute type (ZeRO-1)
  gradients,                          // also gradients: a block's are whole only while its backward runs (ZeRO-2)
  everything,                         // also weights: a block's are whole only while it runs (ZeRO-3, FSDP)
};

constexpr std::array<std::string_view, 4> sharding_names = {"none", "optimizer", "gradients", "everything"};
constexpr std::string_view name_of(Sharding s) { return sharding_names[std::size_t(s)]; }
constexpr std::optional<Sharding> sharding_named(std::string_view name) {
  for (std::size_t i = 0; i < sharding_names.size(); ++i)
    if (sharding_names[i] == name) return Sharding(i);
  return std::nullopt;
}

struct Ranks {
  int count = 1;
  Sharding sharding = Sharding::none;
};

}  // namespace headroom::engine
