// Convolutions that are a product of their tensors as they lie in memory: every weight meets every place (1 x 1, stride 1), or the filter covers the
// whole input. A card may compute such a product without a workspace.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace headroom::dry {

// Sizes by dimension: examples (of a filter: its outputs), channels, then places.
constexpr bool is_plain_product(std::span<const std::int64_t> filter, std::span<const std::int64_t> input,
                                std::span<const std::int64_t> output) {
  constexpr std::size_t places = 2;
  if (filter.size() <= places || input.size() != filter.size() || output.size() != filter.size()) return false;
  bool single = true, whole = true;
  for (std::size_t i = places; i < filter.size(); ++i) {
    single &= filter[i] == 1 && output[i] == input[i];
    whole &= filter[i] == input[i] && output[i] == 1;
  }
  return single || whole;
}

}  // namespace headroom::dry
