// Which kernel reads a dense cache for flash_decode, and how many blocks of it: a small table of what one H200 measured.
#pragma once
#include <optional>

#include "ops/attention/attention.h"

namespace headroom::attention::decode {

struct DenseDeal {
  int warps, a_multiprocessor;  // warps of a block; blocks of a multiprocessor
  std::int64_t blocks;
};
// Nothing where the kernels of a dense cache do not serve the problem, or where clusters are faster.
std::optional<DenseDeal> dense_deal_of(const Problem&, const Device&);

// So many blocks whose warps are key heads are faster, where these lie beside each other in memory. Else nothing.
constexpr int heads_of_block = 8, keys_of_heads = 16, most_parts_of_heads = 16;  // keys: of a step; parts: blocks for each sequence
std::optional<std::int64_t> heads_blocks_of(const Problem&, const Device&);

}  // namespace headroom::attention::decode
