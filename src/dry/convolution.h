// A convolution as cuDNN is asked for it, and what is known of its workspace on a card.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/divide.h"

namespace headroom::dry {

// Sizes by dimension: examples (of a filter: its outputs), channels, then places.
using Sizes = std::span<const std::int64_t>;

constexpr std::size_t first_place = 2;

enum class ConvolutionPass : std::uint8_t { forward, data, weight };

struct ConvolutionShape {
  ConvolutionPass pass = ConvolutionPass::forward;
  Sizes filter{}, input{}, output{};
  std::uint64_t element_bytes = 4;
  bool channels_innermost = false;  // a place's channels lie side by side
  bool dilated = false;
  Sizes strides{}, padding{};  // by dimension of places; empty: not told

  constexpr bool single() const { return element_bytes == 4; }
  constexpr bool told() const { return filter.size() > first_place && input.size() == filter.size() && output.size() == filter.size(); }
  constexpr bool flat() const { return filter.size() == first_place + 2; }  // of two dimensions, or one: that has a second of 1
  constexpr bool grouped() const { return input[1] != filter[1]; }
  constexpr bool one_by_one() const {  // of stride 1: every weight meets every place
    for (std::size_t i = first_place; i < filter.size(); ++i)
      if (filter[i] != 1 || output[i] != input[i]) return false;
    return true;
  }
};

constexpr std::int64_t product_of(Sizes sizes) {
  std::int64_t n = 1;
  for (const std::int64_t s : sizes) n *= s;
  return n;
}

// What kernels of tensor cores copy of a tensor: one whose channels do not lie side by side, or do not fill whole pieces of 16 bytes. The copy does. A
// filter's outputs are channels, too; how groups are filled up is not known.
constexpr std::uint64_t turned_bytes(Sizes tensor, std::uint64_t element_bytes, bool is_filter, bool channels_innermost, bool grouped) {
  const std::int64_t piece = grouped ? 1 : std::int64_t(16 / element_bytes);
  std::uint64_t numbers = 1;
  bool whole = true;
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const bool channels = i == 1 || (i == 0 && is_filter);
    const std::int64_t size = tensor[i] > 0 ? tensor[i] : 0, filled = channels ? round_up(size, piece) : size;
    whole = whole && filled == size;
    numbers *= std::uint64_t(filled);
  }
  return channels_innermost && whole ? 0 : element_bytes * numbers;
}

// cuDNN's choice for a plan. The names are those of its published knobs, in the same order.
struct EngineChoice {
  std::int64_t engine = -1, tile_size = -1, tile_k = -1, workspace = -1, cluster_m = -1, cluster_n = -1;
};

// What a card may take, from the least to the most; `likely` is what a dry run takes.
struct WorkspaceRange {
  std::uint64_t least = 0, likely = 0, most = 0;
  static constexpr WorkspaceRange exactly(std::uint64_t bytes) { return {bytes, bytes, bytes}; }
  constexpr bool certain() const { return least == most; }
  bool operator==(const WorkspaceRange&) const = default;
};

}  // namespace headroom::dry
