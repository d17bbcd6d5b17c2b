#include "engine/forecast/at_ceilings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "engine/forecast/forecast.h"
#include "engine/model/decoder.h"
#include "ops/adamw/adamw.h"

namespace headroom::engine {

const SelfAttention& attention_of(const Recipe& r) {
  static const SelfAttention none;
  return r.model.layers.empty() ? none : r.model.first().attention;
}

// A row of logits that is longer than the registers of a block waits in shared memory, and what does not fit there is read again: so many words reach
// such a share of the copy rate (bench/lab/step.md, "The loss's long rows"; bench/results/h200_ops_time_capped_moments_2026-11-26.txt).
double share_of_copy_rate(double words) {
  constexpr std::pair<double, double> known[] = {{16384, 0.97}, {32000, 0.84}, {50304, 0.79}, {151936, 0.63}};
  if (words <= known[0].first) return known[0].second;
  for (std::size_t i = 1; i < std::size(known); ++i)
    if (const auto [to, share] = known[i]; words <= to || i + 1 == std::size(known)) {
      const auto [from, before] = known[i - 1];
      return before + (share - before) * std::min(1.0, (words - from) / (to - from));
    }
  return 1;
}

namespace {

// How much longer than its arithmetic a product takes because of its shape: tiles of its output come in waves over the card's units, and the last
// wave is as long as a full one. Libraries have tiles of several sizes, the smaller ones slower, and cut sums into pieces. 1: nothing is lost.
double tiled(const Sides& s, int units) {
  struct TileSides {
    double m, n, speed;
  };
  constexpr TileSides tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.98}, {128, 64, 0.97}, {64, 128, 0.97}, {64, 64, 0.94}};
  constexpr double step_k = 64, least_k = 128;
  const auto m = double(s.m), n = double(s.n), k = double(s.k), batch = double(s.batch);
  double best = std::numeric_limits<double>::infinity();
  for (const TileSides& t : tiles)
    for (const double pieces : {1, 2, 3, 4, 6, 8, 16}) {
      const double depth = std::ceil(k / pieces / step_k) * step_k;
      if (pieces > 1 && depth < least_k) break;
      const double waves = std::ceil(std::ceil(m / t.m) * std::ceil(n / t.n) * batch * pieces / units);
      best = std::min(best, waves * units * t.m * t.n * depth / t.speed);
    }
  return std::max(1.0, best / (m * n * k * batch));
}

// A step has few different products, and a search forecasts thousands of steps.
double remembered_tiled(const Sides& s, int units) {
  struct Known {
    std::array<std::int64_t, 5> of{};
    double longer = 0;
  };
  thread_local std::array<Known, 64> all;
  const std::array<std::int64_t, 5> of{s.m, s.n, s.k, s.batch, units};
  std::uint64_t mixed = 0;
  for (const std::int64_t x : of) mixed = (mixed + std::uint64_t(x)) * 0x9E3779B97F4A7C15u;
  Known& known = all[std::size_t(mixed >> 58)];
  if (known.of != of) known = {of, tiled(s, units)};
  return known.longer;
}

// A full card holds its clock back for its power, so that of what products lose to waves a part comes back: in FP32, which takes less power, less
// than in 16 and 8 bits.
double at_a_higher_clock(double longer, double whole) { return std::pow((whole + std::pow(longer, 4)) / (whole + 1), 0.25); }

// The same of attention: a head takes tiles of the next larger dimension, and a block with the last rows works through all keys, however few blocks
// there are. Backward has a block for some keys of a head of keys. Hopper's kernels for 16 bits share rows out among idle units in forward.
double padded(std::int64_t dim) {
  double longer = 1;
  for (const double of_tile : {256, 128, 64, 32})
    if (double(dim) <= of_tile) longer = of_tile / double(dim);
  return longer;
}

// How much longer what attention moves and computes takes so.
struct Longer {
  double moves = 1, computes = 1;
};
Longer tiled_attention(const OpCall& op, const Recipe& r, int units) {
  const Sides& s = op.cost.sides;
  const bool backward = op.making == Making::gradients, shares_rows = size_of(op.precision.dtype) == 2 && !backward;
  const double longer = padded(s.k);
  if (shares_rows) return {longer, longer};
  const SelfAttention& attention = attention_of(r);
  constexpr double rows = 128;
  const double tiles = std::ceil(double(s.m) / rows),
               heads = attention.heads > 0 ? double(attention.kv_heads) / double(attention.heads) : 1;
  // Parts of tiles take as long as whole ones. Sequences shorter than a tile are as the factors were fitted to them.
  const double whole = tiles > 1 ? tiles * rows : double(s.m), of_rows = whole / double(s.m),
               of_pairs = of_rows * (whole + 1) / double(s.m + 1);
  const double blocks = tiles * double(s.batch) * (backward ? heads : 1),
               last = 2 * tiles / (tiles + 1);  // beside the mean one, which sees half
  const double waits = last * units / blocks;
  return {longer * std::max(1.0, of_rows * waits), longer * of_pairs * std::max(1.0, waits)};
}

// flash_sm80 on cards whose own kernels multiply in other instructions (ops/attention/sm80/blocks_tiles.h). The full rate is what it takes with many
// blocks and long rows, over the ceiling; a block that has a unit to itself reaches a share of that rate, because the unit waits for memory and
// exponentials meanwhile. By an H200: bench/results/h200_attention_sweep_2026-11-21.csv in 16 bits, from 16 blocks on; in tf32 the rates in
// blocks_tiles.h and bench/results/h200_attention_precisions_2026-11-23.md.
struct OlderKernel {
  double over_ceiling, rows, at_once;  // rows of a block; blocks that a unit works on
};
constexpr double alone = 0.7;

OlderKernel older_kernel(const OpCall& op) {
  const std::int64_t dim = op.cost.sides.k;
  const bool backward = op.making == Making::gradients, wide = dim > 64, in_16_bits = size_of(op.precision.dtype) == 2;
  if (!backward) return {in_16_bits ? wide ? 2.5 : 2.7 : wide ? 2.6 : 2.8, dim > 128 && in_16_bits ? 64.0 : 128.0, 2};
  return {in_16_bits ? wide ? 4.1 : 3.7 : wide ? 4.8 : 3.85, !in_16_bits && !wide ? 128.0 : 64.0, in_16_bits ? 3.0 : 2.0};
}

// Moments that are rounded at random cost instructions: a weight takes as long as so many operations in FP32, unless memory takes longer. A multiprocessor of
// an H200 issues 2.94 and 1.75 instructions a cycle, of at most four, while the card updates 3.4 thousand million weights in 11.3 and 14.6 ms.
double rounding_flops(Moments m) { return m == Moments::eight ? 150 : 110; }

// Factors of FP32's attention were fitted with flash_simt. An H200's flash_sm80_fp32 reaches 0.46 of its ceiling in full rows of 4096 at head dims
// 64 and 128, where flash_simt reaches 0.82 to 0.85 of FP32's (bench/lab/attention_fp32.md).
constexpr double of_tf32_products = 1.8;

}  // namespace

double older_over_ceiling(const OpCall& op) { return older_kernel(op).over_ceiling; }

// How much longer blocks take than at the full rate: the last rows of a sequence see all keys, whole tiles of them are computed, a block's begin and end
// take as long as one tile more, and units of the card that have too few blocks are slower. Backward is two kernels, with blocks for rows of queries
// and for keys: three and four products of seven.
double older_attention(const OpCall& op, const Recipe& r, int units) {
  const Sides& s = op.cost.sides;
  const OlderKernel k = older_kernel(op);
  const double tiles = std::ceil(double(s.m) / k.rows), whole = k.rows / double(s.m);
  const auto waits = [&](double pairs, double heads) {  // so many heads of queries in a block
    const double of_unit = tiles * pairs / units, busy = std::min(1.0, alone + (1 - alone) * (of_unit - 1) / (k.at_once - 1));
    const double last = 2 * (tiles + 1 / heads) * whole, mean = (tiles + 1 + 2 / heads) * whole;
    return std::max(last / alone, of_unit * mean / std::max(alone, busy)) / of_unit;
  };
  const SelfAttention& attention = attention_of(r);
  const double pairs = double(s.batch), group = attention.kv_heads > 0 ? double(attention.heads) / double(attention.kv_heads) : 1;
  return op.making == Making::gradients ? 3.0 / 7 * waits(pairs, 1) + 4.0 / 7 * waits(pairs / group, group) : waits(pairs, 1);
}

double ceiling_ms(const OpCall& op, const Recipe& r, const Ceilings& c, int units) {
  const double again = op.cost.on_card.again,
               again_ms = units > 0 ? (again < in_cache_bytes ? again / 2 : again) / c.copy_bytes_per_s * 1e3 : 0,
               ms = roofline_ms(op, r.precision, c) + again_ms;
  const Sides& s = op.cost.sides;
  if (op.work == Work::rounding_update && units > 0)
    return std::max(ms, op.cost.flops / adamw::flops_of_element * rounding_flops(r.holding.moments) / c.fp32_flops * 1e3);
  if (op.work == Work::loss && units > 0)
    return std::max(ms / share_of_copy_rate(double(r.model.vocab)),
                    r.model.logit_softcap > 0 && c.fp32_flops > 0 ? op.cost.flops * operations_of_capped_loss / c.fp32_flops * 1e3 : 0);
  if (s.m * s.n * s.k * s.batch == 0 || units == 0) return ms;
  OpCall moved = op;
  moved.cost.flops = 0;
  OpCall computed = op;
  computed.cost.bytes = 0;
  const auto ms_if = [&](const Longer& longer) {
    return std::max(roofline_ms(moved, r.precision, c) * longer.moves, roofline_ms(computed, r.precision, c) * longer.computes);
  };
  if (op.work == Work::matmul) return ms_if({1, at_a_higher_clock(remembered_tiled(s, units), r.precision.dtype == DType::f32 ? 1 : 2)});
  if (op.cost.on_card.older) return ms_if({1, padded(s.k) * older_attention(op, r, units)});
  Longer longer = tiled_attention(op, r, units);
  if (op.cost.on_card.tf32_products > 0) longer.computes *= of_tf32_products;
  return ms_if(longer) + again_ms * longer.moves;
}

}  // namespace headroom::engine
