// What a card takes as a convolution's workspace, from what cuDNN says without one. Of 4860 passes that an H200 was asked for
// (bench/results/h200_scratch_engines_2026-11-29.csv) all took that but for these: tiles that are shared (stream_k.h), filters' gradients by
// Winograd's transforms (winograd.h), and one in a hundred of FP32 by Fourier's, which nothing here foresees.
#pragma once
#include <algorithm>
#include <cstdint>

#include "dry/convolution.h"
#include "dry/plain_product.h"
#include "dry/stream_k.h"
#include "dry/winograd.h"

namespace headroom::dry {

constexpr std::uint64_t workspace_grain = 1 << 20;

// Of a card, or a cuDNN, that was not asked.
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
  if (!winograd_may(s)) return r;
  const std::uint64_t transforms = winograd_bytes(s);
  return {std::min(r.least, transforms), winograd_likely(s, choice.engine) ? transforms : r.likely, std::max(r.most, transforms)};
}

// Of a cuDNN that cannot be asked without a card (one before 9.8, which PyTorch 2.4 to 2.7 bring). Of the 519 passes that an H200 was asked for with 9.19
// (bench/results/h200_scratch_convolutions_2026-11-29.csv) 515 lie in these ranges and 364 take what is likely here; cuDNN's own word is right for 376.
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
