#include "ops/product_update/product_update.h"

#include <algorithm>

#include "ops/matmul/matmul.h"
#include "ops/product_update/impl.h"

namespace headroom::product_update {

Support supports(std::int64_t out, std::int64_t in, const Device& d) {
  if (d.kind == DeviceKind::cpu) return {};
  if (d.sm / 10 != 9) return Support::no(fmt::format("it is written for Hopper (sm_90); {} is sm_{}", d.name, d.sm));
  if (out < 256 || in < 256 || out % 256 || in % 256)
    return Support::no(fmt::format("256 must divide the sides of a weight; one is {} x {}", out, in));
  return {};
}

namespace {

void check_item(const Item& i, const Context& ctx) {
  const Tensor& w = i.weight.copy;
  check(i.dy.shape.rank == 2 && i.x.shape.rank == 2 && w.shape.rank == 2 && i.dy.shape[0] == i.x.shape[0] && i.dy.shape[0] > 0 &&
            i.dy.shape[1] == w.shape[0] && i.x.shape[1] == w.shape[1] && i.dy.contiguous() && i.x.contiguous(),
        Code::bad_argument, "product_update: {}x{} transposed times {}x{} is no gradient of a weight of {}x{}; all contiguous",
        i.dy.shape[0], i.dy.shape[1], i.x.shape[0], i.x.shape[1], w.shape[0], w.shape[1]);
  check(i.dy.dtype == DType::bf16 && i.x.dtype == DType::bf16 && w.dtype == DType::bf16, Code::unsupported,
        "product_update: factors are {} and {}, the weight {}; bf16 is served", name_of(i.dy.dtype), name_of(i.x.dtype), name_of(w.dtype));
  check(i.weight.rest && i.weight.decay, Code::unsupported, "product_update: a weight must be in halves, a copy and a rest, and decay");
  const auto beside = [&](const Tensor& t, DType type) { return t.dtype == type && t.count() == w.count() && t.contiguous(); };
  check(w.contiguous() && beside(i.weight.m, DType::f32) && beside(i.weight.v, DType::f32) && beside(i.weight.rest, DType::u16),
        Code::bad_argument, "product_update: moments must be fp32 and a rest 16 bits, each of the weight's {} elements, all contiguous",
        w.count());
  const Support s = supports(w.shape[0], w.shape[1], ctx.device);
  check(s.ok, Code::unsupported, "product_update: {}; a gradient that is held until the update (--gradients half) is served everywhere",
        s.why);
}

Cost cost_of(std::span<const Item> all) {
  Cost c{};
  for (const Item& i : all) {
    const double n = double(i.weight.copy.count());
    c.flops += 2 * n * double(i.dy.shape[0]) + 15 * n;
    c.bytes += double(i.dy.bytes() + i.x.bytes()) + 24 * n;  // both halves and both moments, read and written
  }
  return c;
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
    const auto op = ctx.note("product_update", {DType::bf16}, cost_of(all), Work::matmul);
    if (!ctx.dry()) advance_sm90(all, numbers, ctx);
    return;
  }
  auto scope = ctx.arena.scope();
  const Tensor room = ctx.arena.make("product_update.grad", DType::bf16, {largest});
  for (const Item& i : all) {
    adamw::Update weight = i.weight;
    weight.grad = Tensor(room.data, DType::bf16, weight.copy.shape);
    matmul::multiply({matmul::transposed(i.dy), i.x, weight.grad}, ctx, "product_update");
    adamw::advance({&weight, 1}, numbers, ctx);
  }
}

}  // namespace headroom::product_update
