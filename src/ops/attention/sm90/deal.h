// How whole tiles of query rows are dealt to the blocks of a forward: fills ForwardArgs, for the hosts of 16 and of 8 bits.
#pragma once
#include <algorithm>

#include "base/divide.h"
#include "gpu/buffer.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/sm90/fwd.h"
#include "ops/op.h"

namespace headroom::attention::sm90 {

enum class TileOrder : std::uint8_t {
  pairs,  // in turn; where tiles differ in length, a long and a short one of a head together
  tail,   // the same, but the tiles of the last heads as blocks ask for them, longest first: they even out what turns leave uneven
  asked   // all as blocks ask, by a counter in the workspace
};

// As many (batch, head) pairs as keep `bytes` of K and V each in half of L2, in even sections: a small last one would be a tail of its own.
inline int pairs_at_once(std::int64_t pairs, double bytes) {
  const std::int64_t fit = std::clamp<std::int64_t>(std::int64_t((24 << 20) / std::max(bytes, 1.0)), 1, pairs);
  return int(ceil_div(pairs, ceil_div(pairs, fit)));
}

// How many of the last (batch, head) pairs are a tail: about six tiles a block (tiles_of_block), half of them long. With more, blocks ask for keys of too many heads at
// once. FlashAttention-3's time over ours with no tail, this one and nothing else (H200, 2026-11-22, bench/lab/attention_fwd.md): causal 64 at
// 16k 0.98, 1.03, 1.04; 128 at 16k 0.98, 1.01, 1.01, at 2k 1.03, 1.05, 0.87, at 1k 1.08, 1.06, 0.80.
inline std::int64_t pairs_of_tail(std::int64_t pairs, std::int64_t row_tiles, std::int64_t tiles_of_block, std::int64_t units) {
  return std::min(pairs, ceil_div(tiles_of_block * units, row_tiles));
}

// bytes_of_pair: of K and V that a (batch, head) pair reads, its share where heads share them
inline void deal_whole_tiles(ForwardArgs& a, TileOrder deal, double bytes_of_pair, Context& ctx, int tiles_of_tail = 6) {
  const std::int64_t pairs = std::int64_t(a.batch) * a.heads;
  std::int64_t asked = 0;
  if (deal == TileOrder::asked) asked = pairs;
  if (deal == TileOrder::tail) asked = pairs_of_tail(pairs, a.row_tiles, tiles_of_tail, ctx.device.units);
  a.pairs_in_turn = int(pairs - asked);
  a.units = int(dealt_units(a.band.reach, a.row_tiles, pairs - asked));
  if (asked == 0) return;
  a.tiles_asked = int(asked * a.row_tiles);
  a.heads_at_once = deal == TileOrder::asked ? pairs_at_once(pairs, bytes_of_pair) : int(asked);
  const Tensor counter = ctx.arena.make("attention.next_tile", DType::i32, {1});
  a.next_tile = counter.as<int>();
  if (!ctx.dry()) set_bytes(counter.data, 0, counter.bytes(), ctx.stream);
}

}  // namespace headroom::attention::sm90
