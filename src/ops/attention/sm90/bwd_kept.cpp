#include "ops/attention/sm90/bwd_kept.h"

#include <algorithm>
#include <climits>

#include "base/divide.h"
#include "ops/attention/attention.h"
#include "ops/attention/sm90/bwd_kept_documents.h"

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
  if (r.heads < p.group() && r.pairs * key_tiles * unfinished_tile_bytes > unfinished_bytes_at_most) return {};
  r.count = ceil_div(kv_pairs, r.pairs) * ceil_div(p.group(), r.heads);
  return r;
}

// Blocks of a query head at most, wherever borders lie. A document's tile of keys walks the rows that see one of its keys, and at most two tiles of rows more
// for its ends. Full and causal, those rows see its first key: summed over tiles that is the pairs, and the rows of the first tile. In a window they are
// no more than the window and a tile. A tile that documents share walks the rows of each of them, which no other shared tile does.
KeptDocumentRanges kept_document_ranges(const Problem& p) {
  constexpr std::int64_t most = kept_bytes_at_most / kept_block_bytes, most_positions = std::int64_t(1) << 21;
  KeptDocumentRanges r{};
  const std::int64_t longer = std::max(p.len_q, p.len_k), shorter = std::min(p.len_q, p.len_k), heads = p.batch * p.heads;
  if (p.documents == 0 || shorter == 0 || longer > most_positions || heads >= INT_MAX) return r;
  const std::int64_t tiles = ceil_div(p.len_k, kept_side) + p.documents + 2, row_tiles = ceil_div(p.len_q, kept_side),
                     ends = 2 * (row_tiles + tiles);
  const bool causal = p.mask.kind == MaskKind::causal;
  const std::int64_t pairs = causal ? longer * shorter - shorter * shorter / 2 + longer : p.len_q * p.len_k;
  std::int64_t blocks = std::min(ceil_div(pairs, kept_side * kept_side) + ends, tiles * row_tiles);
  if (p.mask.kind == MaskKind::window)
    blocks = std::min(blocks, ends + tiles * (ceil_div(std::min(p.mask.window, longer) + std::min(p.mask.ahead, longer), kept_side) + 1));
  if (blocks > most) return r;
  r.most_blocks = blocks;
  // Two heads where a head may be one causal document, as in kept_ranges.
  r.capacity = std::min({std::max(kept_bytes / kept_block_bytes, causal ? 2 * blocks : blocks), most, heads * blocks});
  r.count = ceil_div(heads, r.capacity / blocks);
  if (p.group() > 1 && r.count > 1 && 2 * tiles * unfinished_tile_bytes > unfinished_bytes_at_most) return {};
  return r;
}

}  // namespace headroom::attention::sm90::backward
