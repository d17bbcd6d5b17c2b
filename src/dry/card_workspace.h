// What a card takes as a convolution's workspace, from what cuDNN says without one. Of 4860 passes that an H200 was asked for
// (bench/results/h200_scratch_engines_2026-11-29.csv) all took that but for these: tiles that are shared (stream_k.h), Winograd's transforms
// (winograd.h), and one in a hundred of FP32 by Fourier's, of which gradients of filters by many examples are foreseen (fourier.h).
#pragma once
#include <algorithm>
#include <cstdint>

#include "dry/convolution.h"
#include "dry/fourier.h"
#include "dry/plain_product.h"
#include "dry/stream_k.h"
#include "dry/winograd.h"

namespace headroom::dry {

constexpr std::uint64_t workspace_grain = 1 << 20;

// What a card, or a cuDNN, that was not asked may take.
constexpr WorkspaceRange unknown_workspace(const ConvolutionShape& s, std::uint64_t said) {
  if (s.told() && s.one_by_one()) return {0, said, said};
  return {said, said, said + 16 * workspace_grain};
}

// `tensor_cores`: in FP32, tf32 is allowed; `copies`: bytes of the tensors that kernels of tensor cores need turned; `said`: cuDNN's workspace without a card.
constexpr WorkspaceRange workspace_on_card(const ConvolutionShape& s, const EngineChoice& choice, bool tensor_cores, std::uint64_t copies,
                                           std::uint64_t said) {
  if (!s.told() || s.grouped()) return unknown_workspace(s, said);
  if (s.one_by_one() && !s.channels_innermost) return range_of_product(s, choice, tensor_cores, said);
  WorkspaceRange r = stream_k_workspace(s, choice, copies, said).value_or(WorkspaceRange::exactly(said));
  if (s.one_by_one()) r.least = 0;
  if (winograd_forward_may(s)) {
    const std::uint64_t transforms = winograd_forward_bytes(s);
    return {r.least, winograd_forward_likely(s) ? transforms : r.likely, std::max(r.most, transforms)};
  }
  if (winograd_may(s)) {
    const std::uint64_t transforms = winograd_bytes(s);
    r = {std::min(r.least, transforms), winograd_likely(s, choice.engine) ? transforms : r.likely, std::max(r.most, transforms)};
  }
  const bool likely = fourier_likely(s, choice);
  if (!likely && !fourier_possible(s, choice)) return r;
  const std::uint64_t spectra = fourier_bytes(s, 0);
  return {r.least, likely ? spectra : r.likely, std::max(r.most, spectra)};
}

// With torch.backends.cudnn.benchmark PyTorch makes every plan that cuDNN lists, takes the largest workspace that one of them asks for, tries the plans
// in it, and keeps the fastest. This is a listed plan's own, which no rule of what cuDNN chooses decides.
constexpr WorkspaceRange workspace_of_listed(const ConvolutionShape& s, const EngineChoice& choice, std::uint64_t copies,
                                             std::uint64_t said) {
  if (!s.told() || s.grouped()) return unknown_workspace(s, said);
  const bool may_share_tiles = choice.workspace == 0;
  return stream_k_workspace(s, choice, copies, said)
      .value_or(WorkspaceRange{said, said, may_share_tiles ? said + 16 * workspace_grain : said});
}

// What an engine for channels that lie apart copies where they are innermost: the tensors in which that makes a difference.
constexpr std::uint64_t copies_of_innermost(const ConvolutionShape& s) {
  constexpr std::int64_t element = 4, alignment = 16;
  if (!s.channels_innermost) return 0;
  const auto numbers_of = [](Sizes tensor) { return product_of(tensor.subspan(first_place)) > 1 ? product_of(tensor) : 0; };
  std::int64_t numbers = numbers_of(s.filter);
  for (const Sizes tensor : {s.input, s.output})
    if (tensor[1] > 1) numbers += numbers_of(tensor);
  return numbers == 0 ? 0 : std::uint64_t((element * numbers / alignment + 1) * alignment);
}

constexpr std::uint64_t winograd_workspace(const ConvolutionShape& s) { return winograd_bytes(s) + copies_of_innermost(s); }

// The transforms of one group's tensors. In groups four passes were seen to take up to 54 times as much.
constexpr std::uint64_t fourier_bytes_of_a_group(const ConvolutionShape& s) {
  if (!s.told() || !s.flat()) return 0;
  const std::int64_t groups = s.input[1] / std::max<std::int64_t>(s.filter[1], 1), to = s.filter[0] / std::max<std::int64_t>(groups, 1);
  const std::int64_t filter[] = {to, s.filter[1], s.filter[2], s.filter[3]}, input[] = {s.input[0], s.filter[1], s.input[2], s.input[3]},
                     output[] = {s.output[0], to, s.output[2], s.output[3]};
  ConvolutionShape one = s;
  one.filter = filter;
  one.input = input;
  one.output = output;
  return fourier_may(one) ? fourier_bytes(one, 0) : 0;
}

// The largest workspace among the engines that are listed only where there is a card; nothing: none is. `beside`: the engine of listed_beside_fourier is.
constexpr WorkspaceRange workspace_of_unlisted(const ConvolutionShape& s, bool tensor_cores, bool beside) {
  constexpr std::uint64_t most_of_groups = 64;
  constexpr std::int64_t few_channels = 8, wide = 1 << 18;
  if (!s.told()) return {};
  if (s.grouped()) return {0, 0, most_of_groups * fourier_bytes_of_a_group(s)};
  std::uint64_t bytes = 0;
  const std::uint64_t fourier = fourier_may(s) ? fourier_bytes(s, copies_of_innermost(s)) : 0;
  if (s.pass != ConvolutionPass::data || beside) bytes = fourier;
  if (winograd_listed(s)) bytes = std::max(bytes, winograd_workspace(s));
  std::uint64_t most = std::max(bytes, fourier);
  if (s.one_by_one() && !s.channels_innermost && tensor_cores &&
      s.pass == ConvolutionPass::weight) {                                            // by cuBLAS: a gradient for each example, then
    const std::uint64_t sums = std::uint64_t(s.input[0] * product_of(s.filter)) * 4;  // their sum
    most = std::max(most, sums);
    if (s.single() || product_of(s.input.subspan(first_place)) % 2 == 0 || product_of(s.filter) < wide) bytes = std::max(bytes, sums);
  }
  const bool thin = !s.single() && winograd_fits(s) && std::min(s.filter[0], s.filter[1]) < few_channels;  // in 16 bits a few were seen
  return {0, bytes, thin ? std::max(most, winograd_workspace(s)) : most};
}

// What a cuDNN takes that cannot be asked without a card (one before 9.8, which PyTorch 2.4 to 2.7 bring). Of the 519 passes that an H200 was asked for with
// 9.19 (bench/results/h200_scratch_convolutions_2026-11-29.csv) 516 lie in these ranges and 364 take what is likely here; cuDNN's own word is right for 376.
constexpr WorkspaceRange unasked_workspace(const ConvolutionShape& s, std::uint64_t copies) {
  constexpr std::uint64_t least_said = 131;  // what cuDNN says where nothing is copied; of a block the replays know that it may be larger
  const std::uint64_t likely = std::max(copies, least_said), most = likely + 16 * workspace_grain;
  if (!s.told()) return {0, likely, most};
  if (s.one_by_one() && !s.channels_innermost && !s.grouped()) return range_of_product(s, {}, true, copies);
  return {0, likely, winograd_may(s) ? std::max(most, winograd_bytes(s)) : most};
}

// How far a need may lie outside of what the replays with the least and the most have: where a range is known, one segment.
constexpr std::uint64_t unsure_bytes(const WorkspaceRange& r) { return std::min(r.most - r.least, 2 * workspace_grain); }

}  // namespace headroom::dry
