// Convolutions of 1 x 1 and stride 1 are a product of their tensors. In NCHW cuBLAS multiplies these on a card as they lie; cuDNN without a card has no
// engine that does, and says a workspace for their copies.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>

#include "dry/convolution.h"

namespace headroom::dry {

// The workspace of such a pass on an H200 with cuDNN 9.19, within 400 bytes; nothing where no card decided it. A rule that gives what
// bench/results/h200_scratch_plain_products_2026-11-29.csv has: with 196 places or more (14 x 14) cuBLAS multiplies the tensors as they lie. The
// gradient of the weights is then one of FP32 for each example, which are summed; in 16 bits only where rows are whole tiles. Where
// h200_scratch_convolutions_2026-11-29.csv has both this and copies of the tensors, nothing is decided.
// `tensor_cores`: in FP32, tf32 is allowed; `said`: cuDNN's workspace without a card.
constexpr std::optional<std::uint64_t> workspace_of_product(const ConvolutionShape& p, bool tensor_cores, std::uint64_t said) {
  constexpr std::int64_t least_places = 196, least_rows = 1024, wide = 1 << 18, tile = 64, least_from = 48;
  if (!p.one_by_one() || p.channels_innermost || !tensor_cores) return std::nullopt;
  const std::int64_t examples = p.input[0], from = p.filter[1], to = p.filter[0];
  if (p.grouped()) return std::nullopt;
  const std::int64_t places = product_of(p.input.subspan(first_place));
  if (examples < 2 || places < least_places || examples * places < least_rows) return std::nullopt;
  if (places % 2 == 1 && from * to >= wide) return std::nullopt;
  if (p.pass == ConvolutionPass::forward) return 0;
  const bool single = p.single();
  if (p.pass == ConvolutionPass::data) return from > 1 || !single ? std::optional<std::uint64_t>(0) : std::nullopt;
  const std::uint64_t sums = std::uint64_t(examples) * std::uint64_t(to) * std::uint64_t(from) * 4;
  if (from == 1 || p.filter.size() > first_place + 2) return std::nullopt;
  if (single && from < least_from) return std::nullopt;
  if (single) return sums <= said / 16 * 17 ? std::optional(sums) : std::nullopt;
  const bool tiles = places % tile == 0 && from % tile == 0 && to % tile == 0;
  return tiles && sums <= said / 2 ? std::optional(sums) : std::nullopt;
}

// Between nothing and copies of both tensors: of the 2529 passes in h200_scratch_one_by_one_2026-11-29.csv the card took what is likely here in 84 of 100, in
// 97 of 100 where the rule above decides it. With one example cuBLAS may cut the sum, into 4 MiB at most.
constexpr WorkspaceRange range_of_product(const ConvolutionShape& p, const EngineChoice& choice, bool tensor_cores, std::uint64_t said) {
  constexpr std::uint64_t pieces = 4 << 20;
  if (!tensor_cores || p.input[0] < 2) return {0, said, said + pieces};
  const bool weights = p.pass == ConvolutionPass::weight;
  const std::uint64_t sums = weights ? std::uint64_t(p.input[0]) * std::uint64_t(p.filter[0]) * std::uint64_t(p.filter[1]) * 4 : 0;
  const bool by_itself = weights && (choice.engine == 0 || choice.engine == 1 || choice.engine == 20);  // kernels that copy nothing
  const std::uint64_t likely = workspace_of_product(p, tensor_cores, said).value_or(by_itself || sums > said / 4 * 5 ? said : sums);
  return {0, likely, std::max(said, sums)};
}

}  // namespace headroom::dry
