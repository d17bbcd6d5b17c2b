// The gradient of a filter of 3 x 3 in FP32 by Winograd's transforms. cuDNN lists that engine only where there is a card.
#pragma once
#include <algorithm>
#include <cstdint>

#include "dry/convolution.h"

namespace headroom::dry {

// The transforms of the input, of the gradient and of the filter, 36 numbers for a tile of 4 x 4.
constexpr std::uint64_t winograd_bytes(const ConvolutionShape& s) {
  const auto tiles_of = [](std::int64_t side) { return (side + 3) / 4; };
  const std::int64_t from = s.filter[1], to = s.filter[0];
  const std::int64_t tiles = s.output[0] * tiles_of(s.output[first_place]) * tiles_of(s.output[first_place + 1]);
  return std::uint64_t(36 * (tiles * (from + to) + from * to)) * 4;
}

constexpr bool winograd_fits(const ConvolutionShape& s) {
  if (!s.told() || s.pass != ConvolutionPass::weight || !s.flat() || s.grouped() || s.dilated) return false;
  if (s.filter[2] != 3 || s.filter[3] != 3) return false;
  for (std::size_t i = first_place; i < s.input.size(); ++i)  // stride 1, padding of 0 or 1
    if (s.output[i] > s.input[i] || s.output[i] + 2 < s.input[i]) return false;
  return true;
}

constexpr bool winograd_listed(const ConvolutionShape& s) { return s.single() && winograd_fits(s); }
constexpr bool winograd_may(const ConvolutionShape& s) { return winograd_listed(s) && !s.channels_innermost; }

// Which shapes a card computes so cannot be told but by asking it. Of the 742 that an H200 was asked for
// (bench/results/h200_scratch_winograd_2026-11-29.csv) this is right for nine in ten, by the engine that cuDNN takes without a card.
constexpr bool winograd_likely(const ConvolutionShape& s, std::int64_t engine) {
  constexpr std::int64_t often = 50, always = 67, seldom = 68;
  const std::int64_t from = s.filter[1], to = s.filter[0], side = s.output[first_place];
  const std::int64_t places = s.output[0] * product_of(s.output.subspan(first_place));
  if (engine == always) return true;
  if (engine == often) return from >= 32 && (to <= 64 || side > 13);
  if (engine == seldom) return places <= 1700 ? from * to <= 126976 && 5 * from > 2 * to : std::min(from, to) < 10;
  return false;
}

}  // namespace headroom::dry
