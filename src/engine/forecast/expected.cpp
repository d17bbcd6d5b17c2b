#include "engine/forecast/expected.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/text.h"
#include "engine/forecast/forecast.h"
#include "engine/forecast/hopper.h"
#include "engine/model/decoder.h"
#include "engine/model/models.h"
#include "ops/attention/choose_dry.h"

namespace headroom::engine {

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

// What a step's time is the sum of: so many milliseconds of roofline, or so many kernels, times a field of Efficiency. `near` and `give` say
// where that field is expected before anything is measured: steps move it as far as they speak of it.
struct Term {
  double Efficiency::*factor;
  double near, give, give_of_cpu = give;  // a card's loss and update were measured alone, at memory's rate
};
enum At : std::size_t {
  product,
  gradient_product,
  attention_64,
  attention_64_backward,
  attention_128,
  attention_128_backward,
  elementwise,
  loss,
  update,
  forward_op,
  backward_op
};
constexpr std::array<Term, 11> terms{{{&Efficiency::product, 1.1, 0.5},
                                      {&Efficiency::gradient_product, 1.2, 0.5},
                                      {&Efficiency::attention_64, 1.2, 1},
                                      {&Efficiency::attention_64_backward, 1.2, 1},
                                      {&Efficiency::attention_128, 1.2, 1},
                                      {&Efficiency::attention_128_backward, 1.2, 1},
                                      {&Efficiency::elementwise, 1, 1},
                                      {&Efficiency::loss, 1, 0.1, 3},
                                      {&Efficiency::update, 1, 0.005, 0.5},
                                      {&Efficiency::forward_op_ms, 0, 0.02},
                                      {&Efficiency::backward_op_ms, 0, 0.02}}};
constexpr double step_begins_ms = 0.008;  // over units: a graph's launch, and what prepares the update
constexpr double give_over_units = 0.1;   // every kernel was timed
constexpr double noise = 0.03;            // share of a step's time that the terms do not explain
using Parts = std::array<double, terms.size()>;

const SelfAttention& attention_of(const Recipe& r) {  // the first layer's; a recipe of ops alone has no model
  static const SelfAttention none;
  return r.model.layers.empty() ? none : r.model.first().attention;
}

At kind_of(const OpCall& op, std::int64_t head_dim) {
  const bool backward = op.making == Making::gradients;
  switch (op.work) {
    case Work::attention:
    case Work::attention_parts:
      return head_dim <= 64 ? backward ? attention_64_backward : attention_64 : backward ? attention_128_backward : attention_128;
    case Work::matmul: return backward ? gradient_product : product;
    case Work::update:
    case Work::rounding_update: return update;
    case Work::loss: return loss;
    default: return elementwise;
  }
}

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

double tiled_attention(const OpCall& op, const Recipe& r, int units) {
  const Sides& s = op.cost.sides;
  const bool backward = op.making == Making::gradients, shares_rows = size_of(op.precision.dtype) == 2 && !backward;
  const double longer = padded(s.k);
  if (shares_rows) return longer;
  const SelfAttention& attention = attention_of(r);
  const double tiles = std::ceil(double(s.m) / 128), heads = attention.heads > 0 ? double(attention.kv_heads) / double(attention.heads) : 1;
  const double blocks = tiles * double(s.batch) * (backward ? heads : 1),
               last = 2 * tiles / (tiles + 1);  // beside the mean one, which sees half
  return longer * std::max(1.0, last * units / blocks);
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

// Moments that are rounded at random cost instructions, for 8 bits more than memory takes meanwhile: a weight takes as long as so many operations
// in FP32. An H200 updates 3.4 thousand million weights in 14.9 and 15.8 ms (bench/lab/step.md, "Smaller moments").
double rounding_flops(Moments m) { return m == Moments::eight ? 236 : 223; }

constexpr double fitted_words = 50304;  // of the models from which a loss's factor is fitted

constexpr double in_cache_bytes = 40e6;  // what was just read is found again in the second-level cache, at twice memory's rate at least

// An op at its ceilings, its shape included.
double ceiling_ms(const OpCall& op, const Recipe& r, const Ceilings& c, int units) {
  const double again = op.cost.on_card.again,
               ms = roofline_ms(op, r.precision, c) +
                    (units > 0 ? (again < in_cache_bytes ? again / 2 : again) / c.copy_bytes_per_s * 1e3 : 0);
  const Sides& s = op.cost.sides;
  if (op.work == Work::rounding_update && units > 0)
    return std::max(ms, op.cost.flops / adamw::flops_of_element * rounding_flops(r.holding.moments) / c.fp32_flops * 1e3);
  if (op.work == Work::loss && units > 0)
    return std::max(ms / share_of_copy_rate(double(r.model.vocab)),
                    r.model.logit_softcap > 0 && c.fp32_flops > 0 ? op.cost.flops * operations_of_capped_loss / c.fp32_flops * 1e3 : 0);
  if (s.m * s.n * s.k * s.batch == 0 || units == 0) return ms;
  if (op.work != Work::matmul && !op.cost.on_card.older) return ms * tiled_attention(op, r, units);
  const double longer = op.work != Work::matmul ? padded(s.k) * older_attention(op, r, units)
                                                : at_a_higher_clock(remembered_tiled(s, units), r.precision.dtype == DType::f32 ? 1 : 2);
  OpCall moved = op;
  moved.cost.flops = 0;
  OpCall computed = op;
  computed.cost.bytes = 0;
  return std::max(roofline_ms(moved, r.precision, c), roofline_ms(computed, r.precision, c) * longer);
}
double launches_of(const OpCall& op, int units) { return units > 0 ? op.cost.on_card.launches : 1; }
int units_of(const Device& device) { return device.kind == DeviceKind::cuda ? device.units : 0; }

bool timed(const OpCall& op) {  // on Hopper's units: attention of some kinds was not
  return (op.work != Work::attention || op.cost.on_card.units_us > 0) && op.work != Work::attention_parts;
}

// Over units a part is what they take, at the clock that the step leaves them; kernels begin within that.
Parts parts_over_units(const Recipe& r, const Walk& walk, const Ceilings& ceilings, int units) {
  Parts all{}, computes{};
  double joules = 0;
  for (const OpCall& s : walk.steps) {
    if (s.cost.link_bytes > 0 || !timed(s)) continue;
    const hopper::Taken taken = hopper::taken(s, r, ceilings.copy_bytes_per_s, units);
    const At kind = kind_of(s, attention_of(r).head_dim);
    all[kind] += s.times * taken.ms, computes[kind] += s.times * taken.computes_ms, joules += s.times * taken.joules;
  }
  const double longer = hopper::longer_at_its_clock(joules, std::accumulate(all.begin(), all.end(), 0.0));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] += computes[i] * (longer - 1);
  return all;
}

Parts parts_of(const Recipe& r, const Walk& walk, const Ceilings& ceilings, int units, Over over) {
  if (over == Over::units) return parts_over_units(r, walk, ceilings, units);
  Parts p{};
  for (const OpCall& s : walk.steps) {
    if (s.cost.link_bytes > 0) continue;
    p[kind_of(s, attention_of(r).head_dim)] += s.times * ceiling_ms(s, r, ceilings, units);
    p[s.making == Making::gradients ? backward_op : forward_op] += s.times * launches_of(s, units);
  }
  return p;
}

double time_of(const Parts& parts, const Efficiency& e) {
  double ms = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) ms += parts[i] * e.*terms[i].factor;
  return ms;
}

struct Sums {  // the normal equations of a least-squares fit
  std::array<Parts, terms.size()> a{};
  Parts b{};
  void add(const Parts& x, double y, double weight) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      b[i] += weight * x[i] * y;
      for (std::size_t k = 0; k < x.size(); ++k) a[i][k] += weight * x[i] * x[k];
    }
  }
  // By Gauss and Jordan: what is expected of every term keeps the matrix positive. Terms not in `free` are 0.
  Parts solved(std::array<bool, terms.size()> free) const {
    auto m = a;
    Parts x = b;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!free[i]) continue;
      const double pivot = m[i][i];
      for (double& v : m[i]) v /= pivot;
      x[i] /= pivot;
      for (std::size_t k = 0; k < x.size(); ++k) {
        if (k == i || !free[k]) continue;
        const double times = m[k][i];
        for (std::size_t c = 0; c < x.size(); ++c) m[k][c] -= times * m[i][c];
        x[k] -= times * x[i];
      }
    }
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!free[i]) x[i] = 0;
    return x;
  }
};

struct Point {
  const Decoder* model;
  Parts parts;  // parts of a measured millisecond
  double ms;
};

std::vector<Point> points_of(std::span<const StepMeasured> steps, const Ceilings& ceilings, const Device& device, int workers, Over over) {
  std::vector<Point> points;
  for (const StepMeasured& s : steps) {
    Point p{&s.recipe.model, parts_of(s.recipe, forecast(s.recipe, device, workers).walk, ceilings, units_of(device), over), s.ms};
    if (over == Over::units) p.ms -= step_begins_ms;
    for (double& part : p.parts) part /= p.ms;
    points.push_back(p);
  }
  return points;
}

// Nothing takes less than no time: a term that the fit would give that is taken out, and the others are fitted again.
Parts least_squares(std::span<const Point* const> points, std::span<const double> weights, DeviceKind kind, Over over) {
  Sums sums;
  for (std::size_t i = 0; i < points.size(); ++i) sums.add(points[i]->parts, 1, weights[i] / (noise * noise));
  for (std::size_t i = 0; i < terms.size(); ++i) {
    Parts one{};
    one[i] = 1;
    if (over == Over::units)
      sums.add(one, i >= forward_op ? 0 : 1, std::pow(i >= forward_op ? 1e-9 : give_over_units, -2));
    else
      sums.add(one, terms[i].near, std::pow(kind == DeviceKind::cpu ? terms[i].give_of_cpu : terms[i].give, -2));
  }
  std::array<bool, terms.size()> free;
  free.fill(true);
  Parts x = sums.solved(free);
  for (auto least = std::min_element(x.begin(), x.end()); *least < 0; least = std::min_element(x.begin(), x.end())) {
    free[std::size_t(least - x.begin())] = false;
    x = sums.solved(free);
  }
  return x;
}

// The steps that a fit misses most weigh more in the next: an interval is as wide as the largest error, not as the mean one.
Efficiency fit(Precision precision, std::span<const Point> all, DeviceKind kind, Over over, const Decoder* without = nullptr) {
  constexpr int rounds = 60;
  std::vector<const Point*> points;
  for (const Point& p : all)
    if (!without || !same_model(*p.model, *without)) points.push_back(&p);
  std::vector<double> weights(points.size(), 1), error(points.size());
  Efficiency e{.precision = precision, .of_units = over == Over::units};
  for (int round = 0; round < rounds; ++round) {
    const Parts x = least_squares(points, weights, kind, over);
    for (std::size_t i = 0; i < terms.size(); ++i) e.*terms[i].factor = x[i];
    double mean = 0, sum = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      error[i] = std::abs(time_of(points[i]->parts, e) - 1);
      mean += error[i] / double(points.size());
    }
    if (mean < 1e-6) break;  // every step is what the terms say
    for (std::size_t i = 0; i < points.size(); ++i) sum += weights[i] *= std::pow(error[i] / mean + 0.3, 0.15);
    for (double& w : weights) w *= double(points.size()) / sum;
  }
  return e;
}

const Efficiency* of_precision(const Efficiencies& all, Precision p) {
  for (const Efficiency& e : all.by_precision)
    if (e.precision == p) return &e;
  return nullptr;
}

// How much further from its time a step may lie, for each thing that was not measured itself; docs/performance.md says where each is from.
constexpr double scores_in_memory = 1.3, recorded_within = 1.15;
constexpr double other_card = 1.1, datasheets_share = 1.1, other_kernels = 1.4, split_link = 1.1;
// Products in 8 bits beside bf16's, of an H200: with a scale for each tensor, and what those with more scales take beside them
// (bench/results/h200_fp8_products_2026-11-22.txt: 1282, 1237 and 1153 TFLOP/s).
constexpr double fp8_product = 1.1, fp8_gradient_product = 1.07, fp8_by_rows = 1.04, fp8_by_blocks = 1.11;
constexpr double quantising = 1.15;  // over memory's rate: 1.05 to 1.4 of an H200 (bench/results/h200_fp8_quantise_2026-11-22.txt)
double of_scales(Scales s) { return s == Scales::tensor ? 1 : s == Scales::row ? fp8_by_rows : fp8_by_blocks; }
constexpr double updating_product = 1.25, updating_product_in_fp8 = 1.5;  // beside a gradient's product, of an H200
constexpr double tf32_product = 1.07,
                 tf32_gradient_product = 1.39;  // over the ceiling: an H100's own 1.08 and 1.36, an H200's steps 1.06 and 1.43

// The shares of their datasheets that an H200 and an H100 reach, in the mean; of a card with a datasheet alone as much is expected. An H200 multiplies
// 8 bits 1.89 times as fast as 16; the H100's 8 bits are its datasheet's.
Ceilings expected_ceilings(Ceilings c, bool of_fp8) {
  if (c.bf16_flops > 0 && !of_fp8) c.fp8_flops = std::min(c.fp8_flops, 1.89 * c.bf16_flops);
  if (!by_datasheet(c)) return c;
  c.copy_bytes_per_s *= 0.88;
  c.fp32_flops *= 0.77;
  c.tf32_flops *= 0.77;
  c.bf16_flops *= 0.78;
  c.fp16_flops *= 0.77;
  c.fp8_flops = std::min(c.fp8_flops * 0.72, 1.89 * c.bf16_flops);
  return c;
}

// Steps of this precision; or, where none were measured, of two that have its parts: products as in bf16, everything else as in its own types.
struct InPrecision {
  Efficiency efficiency;
  bool derived = false;
  std::string by;
};
std::optional<InPrecision> in_precision(const Efficiencies& all, Precision p) {
  if (const Efficiency* e = of_precision(all, p)) return InPrecision{*e, false, ""};
  const Efficiency *half = of_precision(all, {DType::bf16}), *single = of_precision(all, {DType::f32});
  if (p.dtype == DType::f32 && half && single) {
    InPrecision f{*single, true, "steps in FP32 and bf16"};
    f.efficiency.product = tf32_product, f.efficiency.gradient_product = tf32_gradient_product;
    f.efficiency.forward_op_ms = half->forward_op_ms,
    f.efficiency.backward_op_ms = half->backward_op_ms;  // they begin kernels of the same kinds
    f.efficiency.within = std::max(half->within, single->within);
    return f;
  }
  if (p.dtype == DType::f16 && half) return InPrecision{*half, true, "steps in bf16"};
  if (size_of(p.dtype) == 1 && half) return InPrecision{*half, true, "steps in bf16"};
  return {};
}

// Why no step of ours can be timed so, or nothing.
std::string why_no_step(const Recipe& r, const Device& device) {
  const Ceilings& c = device.ceilings;
  if (!r.model.trained()) return "the model is only counted: this library has no step of it that could be timed";
  if (c.copy_bytes_per_s <= 0 || c.of(r.precision) <= 0)
    return fmt::format("the ceilings of {} in {} are not known: headroom device --efficiencies measures them there", device.name,
                       name_of(r.precision));
  if (r.ranks.count > 1 && c.link_bytes_per_s <= 0) return "the rate of the link between the cards is not known";
  return "";
}

}  // namespace

OpTimesOrWhy op_times(const Recipe& r, const Device& device) {
  if (const std::string why = why_no_step(r, device); !why.empty()) return {{}, why};
  const bool own = bool(device.efficiencies);
  if (!own && device.kind == DeviceKind::cpu) return {{}, "no steps of this CPU were measured: headroom device --efficiencies"};
  const Efficiencies& others = efficiencies_of_others();
  const bool own_over_units = own && std::ranges::all_of(device.efficiencies->by_precision, &Efficiency::of_units);
  const bool over_units = hopper::has_units_of(device) && (!own || own_over_units);
  const auto f = in_precision(own && !own_over_units ? *device.efficiencies : others, r.precision);
  if (!f)
    return {{},
            fmt::format("no steps in {} were measured: headroom device --efficiencies --precision {}", name_of(r.precision),
                        name_of(r.precision))};
  Ceilings ceilings = own ? device.efficiencies->ceilings : device.ceilings;
  for (const auto member :
       {&Ceilings::fp32_flops, &Ceilings::tf32_flops, &Ceilings::bf16_flops, &Ceilings::fp16_flops, &Ceilings::fp8_flops})
    if (ceilings.*member <= 0) ceilings.*member = device.ceilings.*member;  // it was not measured with the steps
  OpTimes t{f->efficiency,
            expected_ceilings(ceilings, size_of(r.precision.dtype) == 1 && !f->derived),
            units_of(device),
            {},
            f->efficiency.within,
            1,
            f->by,
            f->derived};
  if (over_units) {
    const Efficiency* measured = own ? of_precision(*device.efficiencies, r.precision) : nullptr;
    t.over_units = measured ? *measured : Efficiency{.precision = r.precision, .of_units = true};
    t.within = measured ? measured->within : recorded_within, t.by_other_precisions = false;
    t.by = own && !measured ? fmt::format("no steps in {} were measured on it: as an H100 and H200 take", name_of(r.precision)) : "";
  }
  const auto also = [&](bool is, double wider, const std::string& by) {
    if (!is) return;
    t.wider *= wider;
    t.by += (t.by.empty() ? "" : "; ") + by;
  };
  also(own && units_of(device) > 0 && !f->efficiency.of_kernels, other_card,
       "efficiencies of an older version, which counted an op as one kernel: headroom device --efficiencies --save measures them again");
  also(own && hopper::has_units_of(device) && !over_units && f->efficiency.of_kernels, 1,
       "efficiencies of an older version, over rooflines: headroom device --efficiencies --save measures them again");
  if (!over_units) {
    also(!own, other_card, fmt::format("steps of an H200 at the ceilings of {}, none of whose were measured", device.name));
    also(!own && by_datasheet(device.ceilings), datasheets_share, "its ceilings as a share of its datasheet's");
    also(!own && device.sm != 90, other_kernels, "its kernels are others than the H200's");
  }
  also(attention::family_of(r.attention) != "flash", scores_in_memory, "scores in memory were not measured");
  also(r.ranks.count > 2 || r.ranks.split_tokens || (r.ranks.count > 1 && own && f->efficiency.link == 0), split_link,
       "the link by steps of two H200");
  if (t.efficiency.link == 0) t.efficiency.link = of_precision(others, {DType::bf16})->link;
  return {t, ""};
}

// What an op takes of what a kind of op takes: the factor that was measured, and what is known of kernels that it was not measured with.
static double factor_of(const OpCall& op, const Recipe& r, const OpTimes& t) {
  const std::int64_t head_dim = attention_of(r).head_dim;
  const bool backward = op.making == Making::gradients, updates = op.work == Work::matmul && op.cost.sides.m == 0;
  const std::size_t bytes = size_of(op.precision.dtype);
  double factor = t.efficiency.*terms[kind_of(op, head_dim)].factor;
  if (op.work == Work::loss && t.units > 0 && !t.efficiency.of_kernels) factor *= share_of_copy_rate(fitted_words);
  if (op.work == Work::quantise && t.by_other_precisions) factor = quantising;
  if (updates) factor *= bytes == 1 ? updating_product_in_fp8 : updating_product;
  if (op.work == Work::matmul && bytes == 1)  // steps in fp8 are measured with a scale for each block
    factor *= of_scales(r.scales.value_or(usual_scales)) * (!t.by_other_precisions ? 1 / fp8_by_blocks
                                                            : backward             ? fp8_gradient_product
                                                                                   : fp8_product);
  // Steps in tf32 are attended by the older kernels, and their fit is of these.
  return op.cost.on_card.older && (bytes == 2 || t.by_other_precisions) ? older_kernel(op).over_ceiling : factor;
}

namespace {

// Attention that no kernel was timed for is a roofline times the factor of other attention.
bool timed(const OpCall& op, const OpTimes& t) { return t.over_units && timed(op); }

double over_units(const OpCall& op, const Recipe& r, const OpTimes& t) {
  return (*t.over_units).*terms[kind_of(op, attention_of(r).head_dim)].factor;
}

double begins_ms(const OpCall& op, const OpTimes& t) {
  if (timed(op, t)) return 0;  // its kernels' time has it
  return op.times * (t.efficiency.of_kernels ? launches_of(op, t.units) : 1) *
         (op.making == Making::gradients ? t.efficiency.backward_op_ms : t.efficiency.forward_op_ms);
}

double works_ms(const OpCall& op, const Recipe& r, const OpTimes& t) {
  if (timed(op, t)) return op.times * hopper::taken(op, r, t.ceilings.copy_bytes_per_s, t.units).ms * over_units(op, r, t);
  const OnCard& on_card = op.cost.on_card;
  double in_turn = 0;
  if (t.units > 0 && t.ceilings.fp32_flops > 0)
    in_turn = on_card.in_turn / t.ceilings.fp32_flops * 1e3 * (on_card.older ? older_attention(op, r, t.units) : 1);
  return op.times * (ceiling_ms(op, r, t.ceilings, t.units) * factor_of(op, r, t) + in_turn);
}

Known known_of(const OpCall& op, const OpTimes& t) {
  switch (op.work) {
    case Work::matmul: return t.by_other_precisions ? Known::derived_product : Known::product;
    case Work::attention:
    case Work::attention_parts:
      return op.cost.on_card.older || (t.over_units && size_of(op.precision.dtype) == 4) ? Known::older_attention : Known::attention;
    case Work::loss: return Known::loss;
    case Work::update: return Known::update;
    case Work::rounding_update: return Known::rounding_update;
    case Work::quantise: return Known::quantise;
    default: return Known::elementwise;
  }
}

// How far each kind of work lay from its time, as a logarithm: the smallest numbers that enclose 164 steps on two H200 and an H100, a tenth wider.
// bench/lab/expected_times.md has the rule and what other steps make of it.
constexpr std::array<double, std::size_t(Known::wait) + 1> doubts_over_rooflines{0.14, 0.29, 0.20, 0.34, 0.10, 0.31,
                                                                                 0.05, 0.15, 0.10, 0.37, 0.40};
// The same where every kernel was timed, of 320 steps of which eleven lie outside; there a step has no beginnings of their own.
constexpr std::array<double, std::size_t(Known::wait) + 1> doubts_over_units{0.19, 0.19, 0.15, 0.45, 0.12, 0.10,
                                                                             0.08, 0.12, 0.31, 0.37, 0.60};
constexpr double doubt_of_all = 0.03;

}  // namespace

double expected_ms(const OpCall& op, const Recipe& r, const OpTimes& t, double longer) {
  if (op.cost.link_bytes > 0) return 0;
  const double ms = works_ms(op, r, t) + begins_ms(op, t);
  if (longer == 1 || !timed(op, t)) return ms;
  return ms + op.times * hopper::taken(op, r, t.ceilings.copy_bytes_per_s, t.units).computes_ms * over_units(op, r, t) * (longer - 1);
}

void Composition::add(const OpCall& op, const Recipe& r, const OpTimes& t, double often) {
  if (op.cost.link_bytes > 0) return;
  (*this)[known_of(op, t)] += often * works_ms(op, r, t);
  (*this)[Known::begin] += often * begins_ms(op, t);
  over_units_ = bool(t.over_units);
  if (!timed(op, t)) return;
  const hopper::Taken taken = hopper::taken(op, r, t.ceilings.copy_bytes_per_s, t.units);
  const double factor = over_units(op, r, t);
  computes_ms_[std::size_t(known_of(op, t))] += often * op.times * taken.computes_ms * factor;
  joules_ += often * op.times * taken.joules;
}

double Composition::hold_back() {
  if (!over_units_) return 1;
  const double longer = hopper::longer_at_its_clock(joules_, ms());
  for (std::size_t i = 0; i < ms_.size(); ++i) ms_[i] += computes_ms_[i] * (longer - 1);
  return longer;
}

double Composition::ms() const { return std::accumulate(ms_.begin(), ms_.end(), 0.0); }

double Composition::doubt() const {
  const double all = ms();
  const auto& doubts = over_units_ ? doubts_over_units : doubts_over_rooflines;
  double squares = doubt_of_all * doubt_of_all;
  for (std::size_t i = 0; i < ms_.size() && all > 0; ++i) squares += std::pow(ms_[i] / all * doubts[i], 2);
  return std::sqrt(squares);
}

Expected expected_time(Composition of_step, const LinkTime& link, const OpTimes& t, double ms_at_least) {
  of_step.wait(link.exposed_ms + link.host_exposed_ms);
  const double begins_ms = t.over_units ? step_begins_ms : 0, longer = of_step.hold_back();  // a step that waits needs less power
  of_step.wait(t.efficiency.link * link.ms);
  of_step.begin(begins_ms);
  const double ms = of_step.ms();
  // A card whose own steps lie further from what the others say than an H200's is known less well. A CPU has its own steps alone to go by.
  const double ratio =
      t.wider * (t.units > 0 ? std::exp(of_step.doubt() * std::max(1.0, std::log(t.within) / std::log(recorded_within))) : t.within);
  return {ms, std::max(ms / ratio, std::min(ms, ms_at_least)), ms * ratio, t.by, longer, begins_ms};
}

Over usual_over(const Device& device) { return hopper::has_units_of(device) ? Over::units : Over::rooflines; }

Efficiency fitted(Precision precision, std::span<const StepMeasured> steps, const Ceilings& ceilings, const Device& device, int workers,
                  std::optional<Over> wanted) {
  const Over over = wanted.value_or(usual_over(device));
  return fit(precision, points_of(steps, ceilings, device, workers, over), device.kind, over);
}

std::vector<double> foretold_by_others(Precision precision, std::span<const StepMeasured> steps, const Ceilings& ceilings,
                                       const Device& device, int workers) {
  const Over over = usual_over(device);
  const auto points = points_of(steps, ceilings, device, workers, over);
  std::vector<double> ms;
  for (const Point& p : points)
    ms.push_back(p.ms * time_of(p.parts, fit(precision, points, device.kind, over, p.model)) + (over == Over::units ? step_begins_ms : 0));
  return ms;
}

}  // namespace headroom::engine
