// Kernels of cuDNN 9.19 for Hopper that share the tiles of a last round which would not fill the card: each of these tiles is cut along its sum, and
// every piece's sum lies in the workspace until all are there. How many pieces there are follows from how many clusters of blocks the card holds at
// once. A card that is only described does not say that, so cuDNN asks for too little, or too much, without one.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>

#include "base/divide.h"
#include "dry/convolution.h"

namespace headroom::dry {

struct ProductTile {
  std::int64_t rows = 0, columns = 0;
  constexpr std::uint64_t sum_bytes() const { return std::uint64_t(rows * columns) * 4; }
};

// By the number of cuDNN's tile size; no rows: not seen.
constexpr ProductTile product_tiles[] = {{128, 128}, {128, 64}, {128, 32}, {256, 128}, {256, 64}, {64, 64},  {128, 256},
                                         {64, 128},  {64, 32},  {64, 256}, {},         {},        {},        {},
                                         {},         {},        {256, 32}, {},         {64, 192}, {128, 192}};

constexpr std::optional<ProductTile> product_tile(std::int64_t tile_size) {
  if (tile_size < 0 || tile_size >= std::int64_t(std::size(product_tiles)) || product_tiles[tile_size].rows == 0) return std::nullopt;
  return product_tiles[tile_size];
}

constexpr std::uint32_t units_of_an_h200 = 132;

// How many clusters of so many blocks an H200 holds at once, by cudaOccupancyMaxActiveClusters; 0: not asked.
constexpr std::int64_t clusters_at_once(std::int64_t blocks) {
  constexpr std::int64_t seen[] = {0, 132, 66, 39, 30, 22, 17, 15, 15};
  return blocks > 0 && blocks <= 8 ? seen[blocks] : 0;
}

// Into how many pieces each of `tiles` is cut where `room` blocks fit at once and `whole_rounds` come before. A tile's sum has `steps`.
constexpr std::int64_t pieces_of_a_tile(std::int64_t tiles, std::int64_t room, std::int64_t whole_rounds, std::int64_t steps, bool single) {
  const std::int64_t most = room / tiles;
  if (most < 2) return 1;
  const auto power_of_two = [&](std::int64_t limit, std::int64_t least_steps) {
    std::int64_t pieces = 1;
    while (pieces * 2 <= limit && steps >= pieces * 2 * least_steps) pieces *= 2;
    return pieces;
  };
  if (!single) {
    const bool fill = steps >= most * (whole_rounds > 0 ? 24 : 60);
    return fill ? most : power_of_two(most, whole_rounds > 0 ? 48 : 64);
  }
  if (whole_rounds == 0) return steps >= 31 * most ? most : power_of_two(most, 18);
  if (steps >= 45) {
    const std::int64_t each = std::max<std::int64_t>(ceil_div(steps, most), 4);
    return ceil_div(steps, each);
  }
  if (steps >= 36 && most <= 3) return most;
  return power_of_two(std::min<std::int64_t>(most, 4), steps >= 27 ? 6 : 9);
}

struct TiledProduct {
  std::int64_t tiles = 0, steps = 0;  // steps: of each tile's sum
};

// A pass as a product that is cut into tiles, whole clusters of them.
constexpr TiledProduct tiled_product(const ConvolutionShape& s, const EngineChoice& c, const ProductTile& tile) {
  const auto places = [](Sizes tensor) { return tensor[0] * product_of(tensor.subspan(first_place)); };
  const std::int64_t taps = product_of(s.filter.subspan(first_place)), from = s.filter[1], to = s.filter[0], depth = 32 << c.tile_k;
  const auto cut = [&](std::int64_t rows, std::int64_t columns, std::int64_t steps) {
    return TiledProduct{round_up(ceil_div(rows, tile.rows), c.cluster_m) * round_up(columns, c.cluster_n), steps};
  };
  switch (s.pass) {
    case ConvolutionPass::forward: return cut(places(s.output), ceil_div(to, tile.columns), taps * ceil_div(from, depth));
    case ConvolutionPass::data: return cut(places(s.input), ceil_div(from, tile.columns), taps * ceil_div(to, depth));
    case ConvolutionPass::weight: break;
  }
  return cut(to, taps * ceil_div(from, tile.columns), ceil_div(places(s.output), depth));
}

// How many sums cuDNN says without a card, besides copies of tensors; nothing where it is not these alone.
constexpr std::optional<std::int64_t> sums_in(std::uint64_t said, std::uint64_t copies, std::int64_t sum_bytes) {
  constexpr std::int64_t most = 18, roundings = 3000;
  const std::int64_t beyond = std::int64_t(said) - std::int64_t(copies), sums = (beyond + sum_bytes / 2) / sum_bytes;
  const std::int64_t off = beyond - sums * sum_bytes;
  return beyond >= -roundings && sums <= most && off >= -roundings && off <= roundings ? std::optional(sums) : std::nullopt;
}

// The workspace of such a kernel, nothing for other kernels. `copies`: bytes of the tensors that are turned. The most is that of a card on which every
// block holds a piece.
constexpr std::optional<WorkspaceRange> stream_k_workspace(const ConvolutionShape& s, const EngineChoice& c, std::uint64_t copies,
                                                           std::uint64_t said) {
  const auto tile = product_tile(c.tile_size);
  const std::int64_t blocks = c.cluster_m * c.cluster_n, room = blocks * clusters_at_once(blocks);
  if (c.workspace != 0 || c.tile_k < 0 || c.tile_k > 1 || !tile || room == 0 || s.grouped()) return std::nullopt;
  const std::int64_t sum_bytes = std::int64_t(tile->sum_bytes());
  const auto there = sums_in(said, copies, sum_bytes);
  if (!there) return std::nullopt;
  const auto [tiles, steps] = tiled_product(s, c, *tile);
  const std::int64_t last = tiles % room, pieces = last == 0 ? 1 : pieces_of_a_tile(last, room, tiles / room, steps, s.single());
  const auto with = [&](std::int64_t sums) { return std::uint64_t(std::int64_t(said) + (sums - *there) * sum_bytes); };
  return WorkspaceRange{with(0), with(pieces > 1 ? last * pieces : 0), with(std::int64_t(units_of_an_h200))};
}

}  // namespace headroom::dry
