// Convolutions that are a product of their tensors as they lie in memory: every weight meets every place (1 x 1, stride 1), or the filter covers the
// whole input. A card may compute such a product without a workspace, or with another one than cuDNN says without a card.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace headroom::dry {

// Sizes by dimension: examples (of a filter: its outputs), channels, then places.
using Sizes = std::span<const std::int64_t>;

constexpr std::size_t first_place = 2;

constexpr bool has_places(Sizes filter, Sizes input, Sizes output) {
  return filter.size() > first_place && input.size() == filter.size() && output.size() == filter.size();
}

constexpr bool is_one_by_one(Sizes filter, Sizes input, Sizes output) {
  if (!has_places(filter, input, output)) return false;
  for (std::size_t i = first_place; i < filter.size(); ++i)
    if (filter[i] != 1 || output[i] != input[i]) return false;
  return true;
}

constexpr bool is_plain_product(Sizes filter, Sizes input, Sizes output) {
  if (!has_places(filter, input, output)) return false;
  bool whole = true;
  for (std::size_t i = first_place; i < filter.size(); ++i) whole &= filter[i] == input[i] && output[i] == 1;
  return whole || is_one_by_one(filter, input, output);
}

enum class ConvolutionPass : std::uint8_t { forward, data, weight };

struct ProductPass {
  ConvolutionPass pass = ConvolutionPass::forward;
  Sizes filter, input, output;
  std::uint64_t element_bytes = 4;
  bool channels_innermost = false;  // a place's channels lie side by side
  bool tensor_cores = true;         // in FP32: tf32 is allowed
  std::uint64_t said_bytes = 0;     // cuDNN's workspace without a card
};

// The workspace of such a pass on an H200 with cuDNN 9.19, within 400 bytes; nothing where no card decided it. A rule that gives what
// bench/results/h200_scratch_plain_products_2026-11-29.csv has: with 196 places or more (14 x 14) cuBLAS multiplies the tensors as they lie. The
// gradient of the weights is then one of FP32 for each example, which are summed; in 16 bits only where rows are whole tiles. Where
// h200_scratch_convolutions_2026-11-29.csv has both this and copies of the tensors, nothing is decided.
constexpr std::optional<std::uint64_t> workspace_of_product(const ProductPass& p) {
  constexpr std::int64_t least_places = 196, least_rows = 1024, wide = 1 << 18, tile = 64, least_from = 48;
  if (!is_one_by_one(p.filter, p.input, p.output) || p.channels_innermost || !p.tensor_cores) return std::nullopt;
  const std::int64_t examples = p.input[0], from = p.filter[1], to = p.filter[0];
  if (p.input[1] != from) return std::nullopt;  // groups
  std::int64_t places = 1;
  for (const std::int64_t n : p.input.subspan(first_place)) places *= n;
  if (examples < 2 || places < least_places || examples * places < least_rows) return std::nullopt;
  if (places % 2 == 1 && from * to >= wide) return std::nullopt;
  if (p.pass == ConvolutionPass::forward) return 0;
  const bool single = p.element_bytes == 4;
  if (p.pass == ConvolutionPass::data) return from > 1 || !single ? std::optional<std::uint64_t>(0) : std::nullopt;
  const std::uint64_t sums = std::uint64_t(examples) * std::uint64_t(to) * std::uint64_t(from) * 4;
  if (from == 1 || p.filter.size() > first_place + 2) return std::nullopt;
  if (single && from < least_from) return std::nullopt;
  if (single) return sums <= p.said_bytes / 16 * 17 ? std::optional(sums) : std::nullopt;
  const bool tiles = places % tile == 0 && from % tile == 0 && to % tile == 0;
  return tiles && sums <= p.said_bytes / 2 ? std::optional(sums) : std::nullopt;
}

}  // namespace headroom::dry
