// Convolutions in FP32 by Fourier's transforms. cuDNN lists these engines only where there is a card. PyTorch seldom takes one without
// torch.backends.cudnn.benchmark; with it, it makes room for the largest workspace that is listed, which is most often one of these.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/divide.h"
#include "dry/convolution.h"

namespace headroom::dry {

constexpr std::uint64_t spectrum_bytes(std::int64_t side) {
  return std::uint64_t(side * (side / 2 + 1)) * 8;
}  // complex numbers, half of them

// Whole images: the side of the square that holds a padded one; 0: none does.
constexpr std::int64_t fourier_side(const ConvolutionShape& s) {
  constexpr std::int64_t least = 16, most = 256;
  std::int64_t need = 0, side = least;
  for (std::size_t i = 0; i < s.padding.size(); ++i) need = std::max(need, s.input[first_place + i] + 2 * s.padding[i]);
  while (side < need) side *= 2;
  return side <= most ? side : 0;
}

// By how many places of the gradient of the output each place of the gradient of the input is reached, where every `stride`-th is a plane of its own: from
// `before` in front of it to `after` behind it.
struct Reach {
  std::int64_t before = 0, after = 0;
  constexpr std::int64_t taps() const { return before + after + 1; }
};
constexpr Reach reach_of(std::int64_t filter, std::int64_t stride, std::int64_t padding) {
  return {std::max<std::int64_t>(filter - 1 - padding, 0) / stride, (stride - 1 + padding) / stride};
}

// Sides of such planes, and of the gradient of the output that is read for them.
struct Plane {
  std::int64_t side = 0, read = 0, taps = 0;
};
constexpr Plane plane_of(const ConvolutionShape& s, std::size_t place) {
  const std::int64_t filter = s.filter[first_place + place], out = s.output[first_place + place], stride = s.strides[place];
  const Reach reach = reach_of(filter, stride, s.padding[place]);
  const std::int64_t touched = std::min(s.input[first_place + place], (out - 1) * stride + filter - s.padding[place]);
  const std::int64_t side = ceil_div(touched, stride), read = side + reach.after - reach.before;
  if (read >= out) return {side, read, reach.taps()};
  return {out - reach.after + reach.before, out, reach.taps()};
}

// What the gradient of the input takes for its tensors in FP32 as planes, which it does where the stride is 2: as cuDNN says itself of another engine.
constexpr std::uint64_t planes_bytes(const ConvolutionShape& s) {
  constexpr std::int64_t alignment = 16;
  const std::int64_t from = round_up(s.filter[1], 2), to = round_up(s.filter[0], 8), examples = s.input[0];
  std::int64_t planes = 1, read = 1, weights = 1;
  for (std::size_t i = 0; i < s.strides.size(); ++i) {
    const Plane p = plane_of(s, i);
    planes *= s.strides[i] * p.side;
    read *= p.read;
    weights *= s.strides[i] * p.taps;
  }
  return std::uint64_t(4 * (examples * (from * planes + to * read) + from * to * weights) + alignment);
}

// An H200 listed the engine of the gradient of the input where cuDNN lists this one, with a card and without.
constexpr std::int64_t listed_beside_fourier = 56;

constexpr bool fourier_may(const ConvolutionShape& s) {
  if (!s.told() || !s.single() || !s.flat() || s.grouped() || s.dilated || s.strides.size() != 2 || s.padding.size() != 2) return false;
  const bool data = s.pass == ConvolutionPass::data;
  constexpr std::int64_t tile = 32, least_of_tiles = 3;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t filter = s.filter[first_place + i];
    if (s.padding[i] >= filter || s.strides[i] != s.strides[0] || s.strides[i] > (data ? 2 : 1)) return false;
    if (data && (filter < least_of_tiles || filter > tile)) return false;
    if (s.pass == ConvolutionPass::forward && filter > s.input[first_place + i]) return false;
  }
  return data || fourier_side(s) > 0;
}

// The workspace of such an engine. `copies`: bytes of the tensors that are turned, 0 where channels are not innermost.
constexpr std::uint64_t fourier_bytes(const ConvolutionShape& s, std::uint64_t copies) {
  constexpr std::uint64_t alignment = 16;
  const auto bytes_of = [](Sizes tensor) { return round_up(std::uint64_t(product_of(tensor)) * 4, alignment); };
  std::uint64_t examples = std::uint64_t(s.input[0]), from = std::uint64_t(s.filter[1]), to = std::uint64_t(s.filter[0]);
  if (s.pass == ConvolutionPass::forward)
    return copies + bytes_of(s.filter) + 2 * std::max(from * (examples + to), examples * to) * spectrum_bytes(fourier_side(s));
  if (s.pass == ConvolutionPass::weight)
    return copies + bytes_of(s.output) + 2 * std::max(examples * (from + to), from * to) * spectrum_bytes(fourier_side(s));
  constexpr std::int64_t tile = 32, most_tiles = 2;  // at a time
  std::int64_t tiles = 1;
  std::uint64_t planes = 1;
  for (std::size_t i = 0; i < 2; ++i) {
    const Plane p = plane_of(s, i);
    if (p.side + p.taps - 1 > tile) tiles = most_tiles;
    planes *= std::uint64_t(s.strides[i]);
  }
  if (planes == 1) return copies + (from * to + examples * (from + to) * std::uint64_t(tiles)) * spectrum_bytes(tile);
  from = round_up(from, 2);
  to = round_up(to, 8);
  return planes_bytes(s) + (planes * from * to + examples * (planes * from + to) * std::uint64_t(tiles)) * spectrum_bytes(tile);
}

// Which gradients of filters of 3 x 3 an H200 transformed without torch.backends.cudnn.benchmark: with 64 examples or more, at most 64 channels of output
// and at most 34 places a side, padded, bench/results/h200_scratch_fourier_2026-11-30.csv has all that were seen.
constexpr bool fourier_region(const ConvolutionShape& s) {
  constexpr std::int64_t least_examples = 64, most_to = 64, most_side = 34;
  if (s.pass != ConvolutionPass::weight || s.channels_innermost || !fourier_may(s)) return false;
  if (s.filter[2] != 3 || s.filter[3] != 3 || s.input[0] < least_examples || s.filter[0] > most_to) return false;
  for (std::size_t i = 0; i < s.padding.size(); ++i)
    if (s.input[first_place + i] + 2 * s.padding[i] > most_side) return false;
  return true;
}

// By the kernel that cuDNN takes without a card. Where it has tiles of 64 x 128 and channels fill pieces of 32, or it shares tiles, all were transformed.
constexpr bool fourier_likely(const ConvolutionShape& s, const EngineChoice& c) {
  constexpr std::int64_t shares_tiles = 68, older = 34, tile_64_128 = 7, piece = 32;
  if (!fourier_region(s) || c.tile_size != tile_64_128 || s.filter[0] < piece || s.filter[1] < piece) return false;
  return c.engine == shares_tiles || (c.engine == older && s.filter[0] % piece == 0 && s.filter[1] % piece == 0);
}

// With two other kernels some were, others were not.
constexpr bool fourier_possible(const ConvolutionShape& s, const EngineChoice& c) {
  constexpr std::int64_t few_channels = 40, without_tensor_cores = 20, sixteen = 16, least_side = 32;
  if (!fourier_region(s) || fourier_side(s) < least_side) return false;
  if (c.engine == few_channels) return s.filter[0] == sixteen && s.filter[1] == sixteen;
  return c.engine == without_tensor_cores && s.filter[1] >= sixteen;
}

}  // namespace headroom::dry
