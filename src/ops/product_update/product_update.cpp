#include "ops/product_update/product_update.h"

#include <algorithm>
#include <cmath>

#include "base/divide.h"
#include "gpu/beside.h"
#include "ops/matmul/matmul.h"
#include "ops/product_update/impl.h"

namespace headroom::product_update {

Support supports(std::int64_t out, std::int64_t in, const Device& d) {
  if (d.kind == DeviceKind::cpu) return {};
  if (d.sm / 10 != 9) return Support::no(fmt::format("it is written for Hopper (sm_90); {} is sm_{}", d.name, d.sm));
  if (out % 8 || in % 8) return Support::no(fmt::format("8 must divide the sides of a weight; one is {} x {}", out, in));
  return {};
}

namespace {

// Checks that 8-bit factors have their scales, and that a GPU has a kernel for them.
void check_scales(const Item& i, const Context& ctx) {
  const Scaled &dy = i.dy_transposed, &x = i.x_transposed;
  for (const auto& [name, t] : {std::pair{"dy", &dy}, {"x", &x}}) {
    const Shape expected = scale_shape(t->kind, t->values.shape[0], i.tokens());
    check(t->scale && t->scale.dtype == DType::f32 && t->scale.shape.count() == expected.count() && t->scale.contiguous(),
          Code::bad_argument, "product_update: {} has scales by {}, which are {} fp32 values, contiguous", name, name_of(t->kind),
          expected.count());
  }
  if (!ctx.on_gpu()) return;
  using enum ScaleKind;
  const auto both = [&](ScaleKind of_dy, ScaleKind of_x) { return dy.kind == of_dy && x.kind == of_x; };
  check(both(block, run) || both(row, row) || both(one, one), Code::unsupported,
        "product_update: a GPU does not multiply scales by {} with scales by {}; tensor with tensor, row with row and 128x128 with 1x128 "
        "it does",
        name_of(dy.kind), name_of(x.kind));
  check(x.values.dtype == DType::e4m3, Code::unsupported, "product_update: on a GPU x is e4m3, it is {}", name_of(x.values.dtype));
  const Shape& w = i.weight.copy.shape;
  check(w[0] % 256 == 0 && w[1] % 256 == 0, Code::unsupported,
        "product_update: in fp8 256 must divide the sides of a weight on a GPU; one is {} x {}; a gradient that is held until the update "
        "(--gradients half) is served everywhere",
        w[0], w[1]);
  check(i.tokens() % 16 == 0, Code::unsupported, "product_update: a GPU adds over fp8 numbers that 16 divides; there are {} tokens",
        i.tokens());
}

void check_item(const Item& i, const Context& ctx) {
  const Tensor& w = i.weight.copy;
  const bool eight_bits = bool(i.dy_transposed);
  const Tensor dy = eight_bits ? matmul::transposed(i.dy_transposed.values) : i.dy,
               x = eight_bits ? matmul::transposed(i.x_transposed.values) : i.x;
  const auto contiguous = [&](const Tensor& t) { return (eight_bits ? matmul::transposed(t) : t).contiguous(); };
  check(dy.shape.rank == 2 && x.shape.rank == 2 && w.shape.rank == 2 && dy.shape[0] == x.shape[0] && dy.shape[0] > 0 &&
            dy.shape[1] == w.shape[0] && x.shape[1] == w.shape[1] && contiguous(dy) && contiguous(x),
        Code::bad_argument, "product_update: {}x{} transposed times {}x{} is no gradient of a weight of {}x{}; all contiguous", dy.shape[0],
        dy.shape[1], x.shape[0], x.shape[1], w.shape[0], w.shape[1]);
  const auto served = [&](const Tensor& t) { return eight_bits ? size_of(t.dtype) == 1 : t.dtype == DType::bf16; };
  check(served(dy) && served(x) && w.dtype == DType::bf16, Code::unsupported,
        "product_update: factors are {} and {}, the weight {}; bf16 is served, and fp8 of a bf16 weight", name_of(dy.dtype),
        name_of(x.dtype), name_of(w.dtype));
  if (eight_bits) check_scales(i, ctx);
  check(i.weight.rest && i.weight.decay, Code::unsupported, "product_update: a weight must be in halves, a copy and a rest, and decay");
  const DType moments = i.weight.m.dtype;
  const auto beside = [&](const Tensor& t, DType type) { return t.dtype == type && t.count() == w.count() && t.contiguous(); };
  check(w.contiguous() && (moments == DType::f32 || moments == DType::bf16 || moments == DType::u8) && beside(i.weight.m, moments) &&
            beside(i.weight.v, moments) && beside(i.weight.rest, DType::u16),
        Code::bad_argument,
        "product_update: moments must be fp32, bf16 or 8 bits and a rest 16 bits, each of the weight's {} elements, all contiguous",
        w.count());
  check(moments != DType::u8 || !ctx.on_gpu() || (!eight_bits && w.shape[1] % adamw::moments_block == 0), Code::unsupported,
        "product_update: on a GPU moments in 8 bits need bf16 factors and weights with a multiple of {} columns, these are {} of {}; a "
        "gradient that is held until the update (--gradients half) is served everywhere",
        adamw::moments_block, eight_bits ? "fp8" : "bf16", w.shape[1]);
  const Support s = supports(w.shape[0], w.shape[1], ctx.device);
  check(s.ok, Code::unsupported, "product_update: {}; a gradient that is held until the update (--gradients half) is served everywhere",
        s.why);
}

Cost cost_of(std::span<const Item> all) {
  Cost c{};
  for (const Item& i : all) {
    const double n = double(i.weight.copy.count());
    c.flops += 2 * n * double(i.tokens()) + 15 * n;
    const std::size_t factors = i.dy_transposed ? i.dy_transposed.bytes() + i.x_transposed.bytes() : i.dy.bytes() + i.x.bytes();
    c.bytes += double(factors) + n * 2 * (4 + adamw::bytes_of_moments(i.weight));  // both halves and both moments, read and written
  }
  return c;
}

constexpr double us_a_token = 0.0095;  // for a round of tiles of 128 x 256 (bench/lab/kernel_times.md)

// Tiles are dealt as for this many clusters, an H100 SXM's or H200's, on every card: the bits follow from it.
constexpr int clusters = 66;

// The tiles of the last round are shared where that saves more than handing on sums takes.
Deal deal_of(std::span<const Item> all) {
  constexpr int most_parts = 4;  // a tile's average: each part adds a sum to read
  constexpr double handing_on_us = 8;
  Deal d;
  std::int64_t tokens = all.empty() ? 0 : all[0].tokens();
  for (const Item& i : all) {
    d.whole += int(ceil_div(i.weight.copy.shape[0], tile_side) * ceil_div(i.weight.copy.shape[1], tile_side));
    if (i.tokens() != tokens) tokens = 0;
  }
  const int rest = d.whole % clusters, sharers = std::min(clusters, rest * most_parts);
  if (all.empty() || all[0].dy_transposed || rest == 0) return d;
  if ((1 - double(rest) / sharers) * double(tokens) * us_a_token < handing_on_us) return d;
  return {.whole = d.whole - rest, .shared = rest, .sharers = sharers, .steps = int(ceil_div(tokens, step_tokens))};
}

// The products of a launch without its last update: rounds of tiles over the units.
double units_us(std::span<const Item> all, const Deal& d, int units) {
  if (units < 2) return 0;
  const auto rounds = [&](int turns) { return ceil_div(turns, units / 2); };
  double tokens = 0;
  for (const Item& i : all) tokens = std::max(tokens, double(i.tokens()));
  const double shared = d.sharers > 0 ? rounds(d.sharers) * double(d.shared) / d.sharers : 0;
  return (rounds(d.whole) + shared) * tokens * us_a_token * (all[0].dy_transposed ? 0.5 : 1);
}

}  // namespace

Tensor begin(const Tensor& state, const adamw::Hyper& h, Context& ctx) {
  return adamw::begin(state, h, ctx, {}, ctx.on_gpu() ? clusters * warps_of_a_tile : 0);
}

namespace {

void advance_on_gpu(std::span<const Item> all, const Tensor& numbers, Context& ctx) {
  const DType factors = all.empty() || !all[0].dy_transposed ? DType::bf16 : all[0].dy_transposed.values.dtype;
  Cost cost = cost_of(all);
  const Deal deal = deal_of(all);
  if (ctx.forecasts() && !all.empty()) cost.on_card.units_us = units_us(all, deal, ctx.device.units);
  const auto op = ctx.note("product_update", {factors}, cost, Work::matmul, Making::gradients);
  for (const Item& i : all) {
    check(i.weight.m.dtype == all[0].weight.m.dtype, Code::unsupported, "product_update: a launch takes moments of one type");
    check(i.dy_transposed.values.dtype == all[0].dy_transposed.values.dtype && i.dy_transposed.kind == all[0].dy_transposed.kind &&
              bool(i.dy_transposed) == bool(all[0].dy_transposed),
          Code::unsupported, "product_update: a launch takes factors of one type and kind of scale");
  }
  check(deal.sharers == 0 || numbers.bytes() >= sizeof(adamw::Numbers) + std::size_t(clusters) * warps_of_a_tile * sizeof(int),
        Code::bad_argument, "product_update: the numbers are not those of product_update::begin");
  auto scope = ctx.arena.scope();
  const Tensor sums = deal.sharers > 0 ? ctx.arena.make("product_update.sums", DType::f32, {deal.sharers, tile_side, tile_side}) : Tensor{};
  if (ctx.dry()) return;
  factors == DType::bf16 ? beside::call<advance_sm90>(all, deal, numbers, sums, ctx) : beside::call<advance_fp8_sm90>(all, numbers, ctx);
}

}  // namespace

void advance(std::span<const Item> all, const Tensor& numbers, Context& ctx) {
  std::int64_t largest = 0;
  for (const Item& i : all) {
    check_item(i, ctx);
    largest = std::max(largest, i.weight.copy.count());
  }
  check(all.size() <= most_items, Code::bad_argument, "product_update: {} weights; a launch takes {}", all.size(), int(most_items));
  if (ctx.on_gpu()) {
    advance_on_gpu(all, numbers, ctx);
    for (const Item& i : all)
      if (i.weight.as_is) adamw::quantise_copy(i.weight, ctx);
    return;
  }
  auto scope = ctx.arena.scope();
  const Tensor room = ctx.arena.make("product_update.grad", DType::bf16, {largest});
  for (const Item& i : all) {
    adamw::Update weight = i.weight;
    weight.grad = Tensor(room.data, DType::bf16, weight.copy.shape);
    matmul::Product p{.a = i.dy_transposed, .b = matmul::transposed(i.x_transposed), .c = weight.grad, .sums = i.sums};
    if (!i.dy_transposed) p.a = matmul::transposed(i.dy), p.b = i.x;
    matmul::multiply(p, ctx, "product_update");
    adamw::advance({&weight, 1}, numbers, ctx);
  }
}

}  // namespace headroom::product_update
