#include "ops/attention/sm90/bwd_dealt.h"

#include <algorithm>
#include <cmath>

#include "base/divide.h"

namespace headroom::attention::sm90::backward {

namespace {
std::int64_t longest_of(const Problem& p) { return std::max(p.len_q, p.len_k); }
}  // namespace

Rounds rounds_of(std::int64_t pairs, std::int64_t key_tiles, std::int64_t query_tiles, bool causal, std::int64_t units) {
  Rounds best{};
  double least = 0;
  for (int spread = 0; best.count == 0 || key_tiles >> spread > 0; ++spread) {
    Rounds r{ceil_div(key_tiles, std::int64_t(1) << spread), 0, 0, spread};
    if (r.together > units) continue;
    const std::int64_t sets = causal ? ceil_div(pairs, 2) : pairs;  // a causal head is walked beside the next one
    r.heads = std::min(units / r.together, sets);
    r.count = ceil_div(sets, r.heads) << (spread + causal);
    const double time = double(r.count) * std::max(double(query_tiles) + backward_ends, backward_hand_over * double(r.together));
    if (best.count == 0 || time < least) {
      best = r;
      least = time;
    }
  }
  return best;
}

Walks walks_of(const Problem& p, int rows, double ends) {
  const Band band = p.band();
  Walks w{.shortest = INFINITY};
  for (std::int64_t key = 0; key < p.len_k; key += backward_keys) {
    const TileSpan seen_by = band.row_tiles(key, backward_keys, rows);
    const double steps = double(p.group() * std::max<std::int64_t>(0, seen_by.end - seen_by.begin)) + ends;
    w.longest = std::max(w.longest, steps), w.shortest = std::min(w.shortest, steps), w.all += steps;
  }
  return w;
}

// Causal, in a fixed order, at head dim 64: whether blocks ask for their tiles. Then all multiprocessors work and even out what they differ by, and key tiles
// that follow each other come by a query tile in time all the same; but the longest tiles come last, and half of one is left at the end. Fixed order over the
// free one, known from the start → asked (H200, 2026-11-23): 2k 1.04 → 0.99, 4k 1.04 → 1.01, 8k 1.07 → 1.03, 16k 1.08 → 1.03. Up to 1024 rounds of whole sets
// decide: 4 × 12 heads of 1024 fill two rounds of sets by three quarters, 73.8 → 65.8 µs; 4 × 16 fill them, 76.1 → 81.4 (H200, 2026-11-28).
bool better_asked(const Problem& p, TileShape tile, int units) {
  if (tile.dim != 64 || p.band().reach != Reach::before) return false;
  if (longest_of(p) > 1024) return true;
  const std::int64_t pairs = p.batch * p.kv_heads, key_tiles = ceil_div(p.len_k, backward_keys);
  const Walks w = walks_of(p, tile.rows, backward_ends);
  const double rounds = double(rounds_of(pairs, key_tiles, ceil_div(p.len_q, tile.rows), true, units).count) / 2 * (w.longest + w.shortest),
               asked = std::max(w.longest, w.all * double(pairs) / units + w.longest / 2);
  return asked < 0.97 * rounds;
}

// Where the fixed order is the faster one though the caller did not ask for it: nothing has to be zeroed, and key tiles of equal length come by a query tile in
// step. FlashAttention-3's time over ours, free and fixed (one H200, bench/lab/attention_bwd.md): 64 full 1.05 and 1.12 at 512, 1.07 and 1.06 at 2k;
// 128 full 1.00 and 1.03 at 2k, causal 0.98 and 0.99 at 2k, 0.98 and 0.97 at 4k. At 80 and 96 the order costs nothing.
bool better_in_order(const Problem& p, TileShape tile, int units) {
  if (tile.dim == 80 || tile.dim == 96) return true;
  const Reach reach = p.band().reach;
  const std::int64_t longest = longest_of(p);
  if (reach == Reach::run || (reach == Reach::before && longest > 2048)) return false;
  const std::int64_t pairs = p.batch * p.kv_heads, key_tiles = ceil_div(p.len_k, backward_keys);
  if (tile.dim == 64 && longest > 1024)
    return reach == Reach::before && pairs * key_tiles >= 8 * units;  // there blocks ask: 815 and 803 µs at 2k
  return rounds_of(pairs, key_tiles, ceil_div(p.len_q, tile.rows), reach == Reach::before, units).count <=
         ceil_div(pairs * key_tiles, units);
}

}  // namespace headroom::attention::sm90::backward
