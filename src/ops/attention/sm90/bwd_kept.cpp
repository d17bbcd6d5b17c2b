#include "ops/attention/sm90/bwd_kept.h"

#include <algorithm>

#include "base/divide.h"
#include "ops/attention/attention.h"

namespace headroom::attention::sm90::backward {

KeptRanges kept_ranges(const Problem& p, int units) {
  const Band band = p.band();
  const std::int64_t row_tiles = ceil_div(p.len_q, kept_side), key_tiles = ceil_div(p.len_k, kept_side), kv_pairs = p.batch * p.kv_heads;
  constexpr std::int64_t most = kept_bytes_at_most / kept_block_bytes, most_tiles = 1 << 15;  // place() counts in 32 bits
  KeptRanges r{};
  if (p.documents != 0 || std::max(row_tiles, key_tiles) > most_tiles) return r;
  Kept& k = r.shape;
  k.row_tiles = int(row_tiles), k.key_tiles = int(key_tiles);
  bool any = false;
  for (int m = 0; m < row_tiles; ++m) {
    const TileSpan seen = band.key_tiles(std::int64_t(m) * kept_side, kept_side, kept_side);
    if (band.reach != Reach::before) k.width = std::max(k.width, seen.end - seen.begin);
    if (!any && seen.end > seen.begin) k.shift = seen.end - m, any = true;
  }
  const std::int64_t blocks = !any ? 0 : k.width > 0 ? row_tiles * k.width : k.place(k.row_tiles, 0, 0);
  if (blocks == 0 || blocks > most) return r;
  k.blocks_of_head = int(blocks);
  // A causal head's longest row tile alone takes as long as two of mean length.
  const std::int64_t of_rows = ceil_div(p.len_q, 2 * kept_side), rounds = band.reach == Reach::before ? 2 : 1,
                     heads_for_rows = ceil_div(rounds * units * 95 / 100, of_rows),
                     heads = std::min(std::max(kept_bytes / kept_block_bytes / blocks, heads_for_rows), most / blocks),
                     pairs_for_keys = std::min(kv_pairs, ceil_div(std::int64_t(units) * 19 / 10, key_tiles));
  r.heads = std::clamp<std::int64_t>(heads / pairs_for_keys, 1, p.group());
  r.heads = ceil_div(p.group(), ceil_div(p.group(), r.heads));
  r.pairs = std::clamp<std::int64_t>(heads / r.heads, 1, kv_pairs);
  r.pairs = ceil_div(kv_pairs, ceil_div(kv_pairs, r.pairs));
  r.count = ceil_div(kv_pairs, r.pairs) * ceil_div(p.group(), r.heads);
  return r;
}

}  // namespace headroom::attention::sm90::backward
