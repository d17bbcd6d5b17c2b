// Filters of 3 x 3 by Winograd's transforms: their gradients in FP32, and forward in 16 bits to few channels. cuDNN lists these engines only where there is a
// card.
#pragma once
#include <algorithm>
#include <cstdint>

#include "dry/convolution.h"

namespace headroom::dry {

constexpr std::int64_t winograd_tiles(const ConvolutionShape& s) {
  const auto tiles_of = [](std::int64_t side) { return (side + 3) / 4; };
  return s.output[0] * tiles_of(s.output[first_place]) * tiles_of(s.output[first_place + 1]);
}

// The transforms of the input, of the output or its gradient, and of the filter, 36 numbers for a tile of 4 x 4.
constexpr std::uint64_t winograd_bytes_of(const ConvolutionShape& s, std::int64_t tiles) {
  const std::int64_t from = s.filter[1], to = s.filter[0];
  return std::uint64_t(36 * (tiles * (from + to) + from * to)) * 4;
}

constexpr std::uint64_t winograd_bytes(const ConvolutionShape& s) { return winograd_bytes_of(s, winograd_tiles(s)); }

// Whether any pass may be computed by Winograd's transforms.
constexpr bool winograd_shape(const ConvolutionShape& s) {
  if (!s.told() || !s.flat() || s.grouped() || s.dilated) return false;
  if (s.filter[2] != 3 || s.filter[3] != 3) return false;
  for (std::size_t i = first_place; i < s.input.size(); ++i)  // stride 1, padding of 0 or 1
    if (s.output[i] > s.input[i] || s.output[i] + 2 < s.input[i]) return false;
  return true;
}

constexpr bool winograd_fits(const ConvolutionShape& s) { return s.pass == ConvolutionPass::weight && winograd_shape(s); }

// Forward in 16 bits to few channels: an H200 transformed 128 and 88 images of 48 channels of 32 x 32 to 3, in whole thousands of tiles, but not 64 (4096
// tiles). What else decides is not known, and more tiles were not seen.
constexpr bool winograd_forward_may(const ConvolutionShape& s) {
  constexpr std::int64_t few = 8, most_seen = 8192;
  return s.pass == ConvolutionPass::forward && !s.single() && !s.channels_innermost && winograd_shape(s) && s.filter[0] < few &&
         winograd_tiles(s) <= most_seen;
}

constexpr bool winograd_forward_likely(const ConvolutionShape& s) { return winograd_forward_may(s) && winograd_tiles(s) > 5000; }

constexpr std::uint64_t winograd_forward_bytes(const ConvolutionShape& s) {
  constexpr std::int64_t at_once = 1024;
  return winograd_bytes_of(s, (winograd_tiles(s) + at_once - 1) / at_once * at_once);
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
