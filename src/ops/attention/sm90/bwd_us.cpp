// How long the kernels of Hopper's backward take. Each form follows how tiles are dealt; its numbers were fitted (bench/lab/kernel_times.md).
#include <algorithm>
#include <cmath>

#include "base/divide.h"
#include "ops/attention/sm90/bwd_dealt.h"
#include "ops/attention/sm90/bwd_kept.h"
#include "ops/attention/sm90/bwd_kept_documents.h"
#include "ops/attention/units_us.h"

namespace headroom::attention {

namespace {

using namespace sm90::backward;

// Up to head dim 128: the kernels before and behind the main one move bytes, so much of their number over the copy rate. The main one takes steps; where
// blocks ask for tiles, so much of the longest one is left at the end.
struct Narrow {
  TileShape tile;
  double begin_us, step_us, ends, of_bytes, of_longest;
};
constexpr Narrow narrow_64{{64, 128}, 13.9, 2.35, 0.84, 0.8, 0.24}, narrow_80{{80, 64}, 6.5, 1.62, 2.9, 0.97, 0.23},
    narrow_96{{96, 64}, 6.5, 1.75, 2.9, 0.97, 0.23}, narrow_128{{128, 64}, 12, 2.03, 0.94, 0.81, 0.28};

double moved_bytes(const Problem& p, double sequences, int dim) {  // O, dO, the sum of dQ three times, dQ; dK and dV
  return sequences * double(p.len_q * p.heads * 14 + p.len_k * p.kv_heads * 4) * dim;
}

double narrow_us(const Problem& p, const Problem& each, double sequences, const Narrow& n, const Device& device) {
  const Walks w = walks_of(each, n.tile.rows, n.ends);
  const double pairs = sequences * double(each.kv_heads);
  const bool in_order = p.deterministic || better_in_order(each, n.tile, device.units);
  double steps = 0;
  if (p.documents > 0 || !in_order || better_asked(each, n.tile, device.units)) {
    steps = std::max(w.longest, w.all * pairs / device.units + n.of_longest * w.longest);
  } else {
    const bool causal = each.band().reach == Reach::before;
    const Rounds r =
        rounds_of(each.batch * each.kv_heads, ceil_div(each.len_k, backward_keys), ceil_div(each.len_q, n.tile.rows), causal, device.units);
    const double hand_over = double(each.group()) * backward_hand_over * double(r.together) - (backward_ends - n.ends);
    steps = double(r.count) * (causal                            ? (w.longest + w.shortest) / 2
                               : each.band().reach == Reach::all ? std::max(w.longest, hand_over)
                                                                 : w.longest);
  }
  const double bytes_a_us = device.ceilings.copy_bytes_per_s / 1e6, bytes = moved_bytes(each, sequences, n.tile.dim);
  return n.begin_us + n.step_us * steps + (bytes_a_us > 0 ? n.of_bytes * bytes / bytes_a_us : 0);
}

// Past head dim 128: dK and dV's kernel, with dS kept or not, and dQ's. A range of work is `pairs` (sequence, key head) pairs and the query heads of each.
constexpr double cap_longer = 1.12;  // times as long, for kernels that form scores
double wide_kernels_us(const Problem& each, double pairs, std::int64_t heads, bool keeps, int units) {
  constexpr WalkedBlocks keys_keeping{2, 0.0257, 0.0257, 4.9, 64, 1}, keys{2, 0.0278, 0.0278, 4.9, 64, 1},
      rows_of_kept{2, 0.0119, 0.0119, 4.4, 128}, rows{2, 0.0374, 0.0374, 4.4, 128};
  Problem one = each;
  one.batch = one.kv_heads = 1, one.heads = heads;
  const double longer = each.softcap != 0 ? cap_longer : 1, of_rows = walk_us(one, keeps ? rows_of_kept : rows, units, pairs);
  return longer * walk_us(one, keeps ? keys_keeping : keys, units, pairs) + (keeps ? of_rows : longer * of_rows);
}

double wide_us(const Problem& p, const Problem& each, double sequences, int units) {
  constexpr double before_begins_us = 3, before_us = 2.2, empty_range_us = 5;  // before: of 64 rows
  const double pairs = sequences * double(p.kv_heads);
  double us = before_begins_us + before_us * sequences * double(p.heads * ceil_div(each.len_q, 64)) / units;
  if (p.documents > 0) {
    const KeptDocumentRanges worst = kept_document_ranges(p);
    if (worst.count == 0) return us + wide_kernels_us(each, pairs, p.group(), false, units);
    const std::int64_t tiles = ceil_div(each.len_k, kept_side);
    const double of_head = each.band().visible() / double(kept_side * kept_side) + double(tiles) / 2,
                 blocks = sequences * double(p.heads) * of_head, ranges = std::max(1.0, std::ceil(blocks / double(worst.capacity)));
    return us + ranges * wide_kernels_us(each, pairs / ranges, p.group(), true, units) +
           std::max(0.0, double(worst.count) - ranges) * empty_range_us;
  }
  const KeptRanges r = kept_ranges(p, units);
  if (r.count == 0) return us + wide_kernels_us(each, pairs, p.group(), false, units);
  const std::int64_t kv_pairs = p.batch * p.kv_heads;
  const auto of_pairs = [&](std::int64_t in_range) {  // whole ranges of a key head's query heads, and the last one
    const std::int64_t whole = p.group() / r.heads, rest = p.group() % r.heads;
    return double(whole) * wide_kernels_us(each, double(in_range), r.heads, true, units) +
           (rest > 0 ? wide_kernels_us(each, double(in_range), rest, true, units) : 0);
  };
  us += double(kv_pairs / r.pairs) * of_pairs(r.pairs);
  return kv_pairs % r.pairs > 0 ? us + of_pairs(kv_pairs % r.pairs) : us;
}

}  // namespace

double sm90_backward_us(const Problem& p, const Device& device) {
  if (!on_timed_units(p, device)) return 0;
  const auto [each, sequences] = alike(p);
  const std::int64_t dim = std::max(p.head_dim, p.value_dim());
  if (dim > 128) return wide_us(p, each, sequences, device.units);
  if (p.softcap != 0) return 0;
  return narrow_us(p, each, sequences, dim <= 64 ? narrow_64 : dim <= 80 ? narrow_80 : dim <= 96 ? narrow_96 : narrow_128, device);
}

}  // namespace headroom::attention
