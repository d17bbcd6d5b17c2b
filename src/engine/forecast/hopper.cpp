#include "engine/forecast/hopper.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "base/efficiency.h"
#include "engine/forecast/at_ceilings.h"
#include "ops/adamw/adamw.h"

namespace headroom::engine::hopper {

namespace {

constexpr double kernel_us = 1.75;          // a kernel that does hardly anything, and the gap behind it
constexpr double cache_bytes_a_us = 4.6e6;  // from there
constexpr double fp32_operations_a_us = 50.8e6;
// A step's power, and the power by this formula above which clocks were seen to fall: the cards' limit is 700 W (bench/lab/kernel_times.md, "Power").
constexpr double idle_watts = 127, limit_watts = 720, joules_a_byte = 134e-12;

struct TileSides {
  double m, n;
};

// A library's tiles for tensor cores: every pair of these sides that fits the registers of a block.
std::vector<TileSides> many_tiles() {
  constexpr double longer[] = {64, 128, 192, 256, 320}, shorter[] = {16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256};
  std::vector<TileSides> all;
  for (const double a : longer)
    for (const double b : shorter)
      if (a * b <= 256 * 176) all.push_back({a, b}), all.push_back({b, a});
  return all;
}
constexpr TileSides one_tile[] = {{128, 128}};
constexpr TileSides older_tiles[] = {{256, 128}, {128, 256}, {128, 128}, {64, 128}, {128, 64}, {64, 64}};
constexpr TileSides fp32_tiles[] = {{128, 128}, {128, 64},  {64, 128}, {64, 64}, {128, 32}, {32, 128},
                                    {256, 128}, {128, 256}, {64, 32},  {32, 64}, {32, 32}};

// The tiles of a product's output come in waves over the units. A tile takes so long for each term of its sums: its area over `area_a_us`, and
// us_a_side for each of its sides' elements, which are loaded; and tile_us. Pieces of long sums are added up afterwards.
struct Products {
  std::span<const TileSides> tiles;
  double area_a_us, us_a_side, tile_us, begin_us, over_memory, pieces_us;
  bool pieces = true;
};

Products products_of(const OpCall& op, const Recipe& r, bool of_weights) {
  static const std::vector<TileSides> many = many_tiles();
  switch (size_of(op.precision.dtype)) {
    case 1:  // with one scale for a tensor the library has all its tiles, with more of them one
      if (r.scales.value_or(usual_scales) == Scales::tensor) return {many, 9.03e6, 6.67e-6, 0.065, 2.82, 1.06, 9.4};
      return {one_tile, 6.98e6, 1.08e-6, 1.41, 2.27, 1.12, 0, false};
    case 2: return {many, 4.85e6, 8.47e-6, 0.568, 2.54, 1.07, 5.8};
    default: break;
  }
  const Math math = op.precision.dtype == DType::f32 ? r.precision.math : op.precision.math;
  if (math != Math::tf32) return {fp32_tiles, 1.9e5, 1.2e-5, 0.5, 5.6, 1.6, 1};
  if (of_weights) return {older_tiles, 1.37e6, 2.64e-5, 1.73, 2.86, 1.64, 10.3};
  return {many, 2.4e6, 1.95e-5, 0.4, 5.4, 1.14, 13.5};
}

double waves_us(const Sides& s, const Products& p, int units) {
  constexpr double step_k = 32, least_k = 128, sums_a_us = 3e8 / 8;
  const auto m = double(s.m), n = double(s.n), k = double(s.k), batch = double(s.batch);
  double best = std::numeric_limits<double>::infinity();
  for (const TileSides& t : p.tiles) {
    const double of_output = std::ceil(m / t.m) * std::ceil(n / t.n) * batch,
                 us_a_term = t.m * t.n / p.area_a_us + p.us_a_side * (t.m + t.n);
    for (const double pieces : {1, 2, 3, 4, 5, 6, 8, 12, 16}) {
      const double depth = std::ceil(k / pieces / step_k) * step_k;
      if (pieces > 1 && (!p.pieces || depth < least_k)) break;
      const double add_up = pieces > 1 ? p.pieces_us + pieces * m * n * batch / sums_a_us : 0;
      best = std::min(best, std::ceil(of_output * pieces / units) * (depth * us_a_term + p.tile_us) + add_up);
    }
  }
  return best;
}

// A step has few different products, and a search forecasts thousands of steps.
double remembered_waves_us(const Sides& s, const Products& p, int units) {
  struct Known {
    Sides of{};
    const TileSides* tiles = nullptr;
    double area = 0, us = 0;
    int units = 0;
  };
  thread_local std::array<Known, 128> all;
  std::uint64_t mixed = std::uint64_t(p.area_a_us);
  for (const std::int64_t x : {s.m, s.n, s.k, s.batch}) mixed = (mixed + std::uint64_t(x)) * 0x9E3779B97F4A7C15u;
  Known& known = all[std::size_t(mixed >> 57)];
  const bool same = known.of.m == s.m && known.of.n == s.n && known.of.k == s.k && known.of.batch == s.batch &&
                    known.tiles == p.tiles.data() && known.area == p.area_a_us && known.units == units;
  if (!same) known = {s, p.tiles.data(), p.area_a_us, waves_us(s, p, units), units};
  return known.us;
}

double sum_of_powers(double a, double b, double power) { return std::pow(std::pow(a, power) + std::pow(b, power), 1 / power); }

double joules_a_flop(Precision p) {
  switch (size_of(p.dtype)) {
    case 1: return 0.92e-12;
    case 2: return 1.11e-12;
    default: return p.math == Math::tf32 ? 2.69e-12 : 11.2e-12;
  }
}

// A product of two matrices: its sums run beside memory, but for what is moved behind its tiles, which takes so many times as long as a
// copy (bench/lab/gated_product.md).
constexpr double behind_forward = 2, behind_backward = 0.7;
Taken product(const OpCall& op, const Recipe& r, double bytes_a_us, int units) {
  constexpr double beside = 2.65;
  const Sides& s = op.cost.sides;
  const Products p = products_of(op, r, makes_weights(op));
  const double moved = op.cost.on_card.behind, share = op.making == Making::gradients ? behind_backward : behind_forward,
               waves = remembered_waves_us(s, p, units), memory = (op.cost.bytes - moved) * p.over_memory / bytes_a_us,
               both = sum_of_powers(waves, memory, beside);
  return {(p.begin_us + both + share * moved / bytes_a_us) / 1e3, both / 1e3 * std::pow(waves / both, beside)};
}

// A product that updates its weights: moments are read and written behind each tile's sums.
Taken update(const OpCall& op, double bytes_a_us) {
  constexpr double begin_us = 7, longer = 1.15;
  const double sums = longer * op.cost.on_card.units_us;
  return {(begin_us + sums + longer * op.cost.bytes / bytes_a_us) / 1e3, sums / 1e3};
}

// What reads and writes. A tensor that was just written is read from the second-level cache.
Taken elementwise(const OpCall& op, const Recipe& r, double bytes_a_us) {
  const OnCard& c = op.cost.on_card;
  const double again = c.again < in_cache_bytes ? c.again / 2 : c.again, of_launch = std::max(op.cost.bytes / c.launches, 1.0);
  double memory = (op.cost.bytes + again) / bytes_a_us, begin_us = kernel_us, units_us = c.units_us;
  const double in_cache = std::min(1.0, in_cache_bytes / of_launch) * std::max(0.0, 1 - bytes_a_us / cache_bytes_a_us);
  switch (op.work) {
    case Work::loss: {  // forward alone reads rows once
      const double share = share_of_copy_rate(double(r.model.vocab));
      memory /= r.purpose == Purpose::forward ? std::sqrt(share) : share;
      if (r.model.logit_softcap > 0) units_us = op.cost.flops * operations_of_capped_loss / fp32_operations_a_us;
      break;
    }
    case Work::quantise: memory *= 1.2, begin_us = c.launches > 2 ? 2.5 : 1.25; break;
    case Work::update: break;
    case Work::rounding_update:
      units_us = op.cost.flops / adamw::flops_of_element * (r.holding.moments == Moments::eight ? 1.9e-6 : 2.6e-6);
      break;
    case Work::norm: begin_us = op.making == Making::gradients ? 2.2 : kernel_us; [[fallthrough]];
    default: memory *= 1 - in_cache;
  }
  return {(c.launches * begin_us + sum_of_powers(memory, units_us, 4)) / 1e3, 0};
}

}  // namespace

namespace {

bool measured_sm_90(const Device& d) {
  return d.kind == DeviceKind::cuda && d.sm == 90 && d.units > 0 && d.ceilings.bf16_flops > 0 && !by_datasheet(d.ceilings);
}
bool as_fast(const Device& d) {
  constexpr double of_unit = 754e12 / 132;  // an H200 multiplies so fast
  return d.ceilings.bf16_flops / d.units > 0.8 * of_unit;
}

}  // namespace

bool has_units_of(const Device& d) { return measured_sm_90(d) && as_fast(d); }
bool has_slower_units(const Device& d) { return measured_sm_90(d) && !as_fast(d); }

Taken taken(const OpCall& op, const Recipe& r, double copy_bytes_per_s, int units) {
  const double bytes_a_us = copy_bytes_per_s / 1e6;
  const bool attends = op.work == Work::attention;
  Taken t = attends                                          ? Taken{op.cost.on_card.units_us / 1e3, op.cost.on_card.units_us / 1e3}
            : op.work == Work::matmul && op.cost.sides.m > 0 ? product(op, r, bytes_a_us, units)
            : op.work == Work::matmul                        ? update(op, bytes_a_us)
                                                             : elementwise(op, r, bytes_a_us);
  Precision p = op.precision;
  if (p.dtype == DType::f32) p.math = r.precision.math;
  const bool in_tiles = op.work == Work::matmul || op.work == Work::attention || op.work == Work::attention_parts;
  const int products = op.cost.on_card.tf32_products;
  const double of_flop = products > 0 ? products * joules_a_flop({DType::f32, Math::tf32}) : joules_a_flop(p);
  t.joules = (in_tiles ? op.cost.flops * of_flop : 0) + op.cost.bytes * joules_a_byte;
  return t;
}

double longer_at_its_clock(double joules, double ms) {
  if (ms <= 0) return 1;
  const double watts = idle_watts + joules / ms * 1e3;
  return watts <= limit_watts ? 1 : std::pow(watts / limit_watts, 0.48);
}

}  // namespace headroom::engine::hopper
