#include "ops/gated_product/gated_product.h"

#include "base/divide.h"
#include "gpu/beside.h"
#include "ops/gated_product/impl.h"
#include "ops/matmul/matmul.h"
#include "ops/swiglu/swiglu.h"

namespace headroom::gated_product {

Support supports(const Sizes& s, DType type, const Device& d) {
  if (d.kind == DeviceKind::cpu) return {};
  if (d.sm / 10 != 9) return Support::no(fmt::format("it is written for Hopper (sm_90); {} is sm_{}", d.name, d.sm));
  if (type != DType::bf16) return Support::no(fmt::format("it is written for bf16, not {}", name_of(type)));
  if (s.terms % 8 || s.width % 8)
    return Support::no(fmt::format("8 must divide the width and the terms of a sum; they are {} and {}", s.width, s.terms));
  constexpr std::int64_t side = 256;  // a tile of two blocks has this side
  if (2 * ceil_div(s.rows, side) * ceil_div(s.width, side) < d.units)
    return Support::no(fmt::format("{} x {} are fewer tiles than {} has multiprocessors", s.rows, s.width, d.name));
  return {};
}

namespace {

void check_tensors(const Tensor& in, const Tensor& w, Shape of_w, const Tensor& gate_up, const Tensor& act, const Sizes& s, Context& ctx) {
  const auto is = [&](const Tensor& t, Shape shape) { return t.shape == shape && t.dtype == in.dtype && t.contiguous(); };
  check(
      in.shape.rank == 2 && gate_up.shape.rank == 2 && is(in, {s.rows, s.terms}) && is(w, of_w) && is(gate_up, {s.rows, 2 * s.width}) &&
          (!act || is(act, {s.rows, s.width})),
      Code::bad_argument,
      "gated_product: {} rows of {} terms, a weight of {} x {} and gate and up of {} x {} do not fit together; all of one type, contiguous",
      s.rows, s.terms, w.shape[0], w.shape[1], gate_up.shape[0], gate_up.shape[1]);
  const Support served = supports(s, in.dtype, ctx.device);
  check(served.ok, Code::unsupported, "gated_product: {}; matmul and swiglu are served everywhere", served.why);
}

std::size_t bytes_of(const Tensor& act) { return act ? act.bytes() : 0; }

// As the product has it, with the operations of SwiGLU; behind: what is moved behind the product's tiles, of these bytes.
Cost cost_of(const Sizes& s, std::int64_t columns, double operations, double bytes, double behind) {
  Cost c{2.0 * double(s.rows) * double(columns) * double(s.terms) + operations * double(s.rows) * double(s.width), bytes};
  c.sides = {s.rows, columns, s.terms};
  c.on_card.behind = behind;
  return c;
}

}  // namespace

void forward(const Forward& f, Context& ctx, Name product) {
  const Sizes s = f.sizes();
  check_tensors(f.x, f.w, {2 * s.width, s.terms}, f.gate_up, f.act, s, ctx);
  if (ctx.on_gpu()) {
    const double bytes = double(f.x.bytes() + f.w.bytes() + f.gate_up.bytes() + bytes_of(f.act)) + f.more_bytes;
    const auto op = ctx.note({"gated_product.forward", product.layer}, {DType::bf16},
                             cost_of(s, 2 * s.width, f.act ? 6 : 0, bytes, double(bytes_of(f.act))), Work::matmul, Making::values);
    if (!ctx.dry()) beside::call<forward_sm90>(f, ctx);
    return;
  }
  matmul::Product p{.a = f.x, .b = matmul::transposed(f.w), .c = f.gate_up};
  p.more_bytes = f.more_bytes;
  matmul::multiply(p, ctx, product);
  if (f.act) swiglu::forward({f.gate_up, f.act}, ctx);
}

void backward(const Backward& b, Context& ctx, Name product) {
  const Sizes s = b.sizes();
  check_tensors(b.dy, b.w, {s.terms, s.width}, b.gate_up, b.act, s, ctx);
  if (ctx.on_gpu()) {
    const double bytes = double(b.dy.bytes() + b.w.bytes() + 2 * b.gate_up.bytes() + bytes_of(b.act));
    const auto op = ctx.note({"gated_product.backward", product.layer}, {DType::bf16},
                             cost_of(s, s.width, b.act ? 13 : 12, bytes, 2.0 * double(b.gate_up.bytes())), Work::matmul, Making::gradients);
    if (!ctx.dry()) beside::call<backward_sm90>(b, ctx);
    return;
  }
  auto scope = ctx.arena.scope();
  const Tensor dact = b.act ? b.act : ctx.arena.make({"gated_product.dact", product.layer}, b.dy.dtype, {s.rows, s.width});
  matmul::multiply({.a = b.dy, .b = b.w, .c = dact}, ctx, product, Making::gradients);
  swiglu::backward({b.gate_up, dact, b.gate_up, b.act}, ctx);
}

}  // namespace headroom::gated_product
