// How whole tiles of query rows are dealt to the blocks of a forward: fills ForwardArgs, for the hosts of 16 and of 8 bits.
#pragma once
#include <algorithm>
#include <array>

#include "base/divide.h"
#include "gpu/buffer.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/sm90/fwd.h"
#include "ops/op.h"

namespace headroom::attention::sm90 {

enum class TileOrder : std::uint8_t {
  in_turn,  // where tiles differ in length, a long and a short one of a head together, or each by itself where that is sooner over
  asked     // as blocks ask, by a counter in the workspace: as many heads together as have their keys in L2, at the end the last ones
};

// As many (batch, head) pairs as keep `bytes` of K and V each in a third of L2, in even sections: a small last one would be a tail of its own. Causal, bf16, at
// 2k to 16k with 16, 24 and 32 MiB, FlashAttention-3's time over ours in the mean: head dim 64 1.036, 1.032, 1.034, 128 1.034, 1.031, 1.032, 256 1.024, 1.020,
// 1.023; with the first heads in turn and the tail alone asked for, as until then, 1.034, 1.028 (one H200, 2026-11-29, bench/lab/attention_fwd.md).
inline int pairs_at_once(std::int64_t pairs, double bytes) {
  const std::int64_t fit = std::clamp<std::int64_t>(std::int64_t((16 << 20) / std::max(bytes, 1.0)), 1, pairs);
  return int(ceil_div(pairs, ceil_div(pairs, fit)));
}

// How many of the last (batch, head) pairs are asked for together: about so many tiles a block, half of them long. With more, blocks ask for keys of too many
// heads at once; with fewer, some end late.
constexpr std::int64_t last_tiles_of_block(int dim) { return dim > 128 ? 4 : 6; }
inline std::int64_t last_pairs(std::int64_t pairs, std::int64_t row_tiles, int dim, std::int64_t units) {
  return std::min(pairs, ceil_div(last_tiles_of_block(dim) * units, row_tiles));
}

// The tiles of rows of a causal head, and how long they take in key tiles.
struct RowTiles {
  static constexpr int most = 64;
  std::array<int, most> steps;
  int count;
  double ends;
  double time(int i) const { return steps[std::size_t(i)] + ends; }
  double of_pair(int i) const { return i == count - 1 - i ? time(i) : time(i) + time(count - 1 - i); }
};

// How long the block with most to do is busy, where tiles are dealt in turn: in pairs, and each by itself.
struct InTurn {
  double in_pairs, longest_first;
};
inline InTurn longest_of_blocks(const RowTiles& rows, int pairs, int units) {
  const int tiles = rows.count * pairs, blocks = std::min(units, tiles);
  double pair = 0, most = 0;
  for (int i = 0; 2 * i < rows.count; ++i) pair = std::max(pair, rows.of_pair(i));
  for (int block = 0; block < blocks; ++block) {
    double busy = 0;
    for (int round = 0; round * blocks < tiles; ++round)
      if (const int tile = tile_in_turn(round, block, blocks); tile < tiles) busy += rows.time(rows.count - 1 - tile / pairs);
    most = std::max(most, busy);
  }
  return {double(ceil_div(ceil_div(rows.count, 2) * pairs, units)) * pair, most};
}

// Pairs make whole rounds of units, which leaves units idle where there are few: 48 heads of 1024 in tiles of 256 rows are 96 pairs for 132 units. Each by
// itself, tiles read the keys of all heads at once, so these must fit in L2; and they must be few, since the host counts them.
// steps_of(row tile): its key tiles. ends: what a tile takes besides, in key tiles. The result is 0 where pairs are as good.
template <class StepsOf>
double time_longest_first(std::int64_t pairs, std::int64_t row_tiles, double bytes_of_pair, int units, double ends, StepsOf&& steps_of) {
  if (bytes_of_pair * double(pairs) > (40 << 20) || row_tiles > RowTiles::most || row_tiles * pairs > 8 * units) return 0;
  RowTiles rows{.steps = {}, .count = int(row_tiles), .ends = ends};
  for (int i = 0; i < rows.count; ++i) rows.steps[std::size_t(i)] = steps_of(i);
  const InTurn t = longest_of_blocks(rows, int(pairs), units);
  return t.longest_first < 0.97 * t.in_pairs ? t.longest_first : 0;
}

// bytes_of_pair: of K and V that a (batch, head) pair reads, its share where heads share them
inline void deal_whole_tiles(ForwardArgs& a, TileOrder order, double bytes_of_pair, Context& ctx, int dim) {
  const std::int64_t pairs = std::int64_t(a.batch) * a.heads;
  if (order == TileOrder::in_turn) {
    a.pairs_in_turn = int(pairs);
    a.units = int(a.longest_first ? pairs * a.row_tiles : dealt_units(a.band.reach, a.row_tiles, pairs));
    return;
  }
  a.tiles_asked = int(pairs * a.row_tiles);
  a.pairs_last = int(last_pairs(pairs, a.row_tiles, dim, ctx.device.units));
  a.heads_at_once = pairs > a.pairs_last ? pairs_at_once(pairs - a.pairs_last, bytes_of_pair) : 1;
  const Tensor counter = ctx.arena.make("attention.next_tile", DType::i32, {1});
  a.next_tile = counter.as<int>();
  if (!ctx.dry()) set_bytes(counter.data, 0, counter.bytes(), ctx.stream);
}

}  // namespace headroom::attention::sm90
