#include "ops/adamw/adamw.h"

#include <algorithm>

#include "ops/adamw/impl.h"

namespace headroom::adamw {

void start(const Tensor& state, double scale, Context& ctx) {
  if (ctx.dry()) return;
  ctx.on_gpu() ? start_cuda(state, scale, ctx) : start_cpu(state, scale);
}

void set_rate(const Tensor& state, double lr, Context& ctx) {
  if (ctx.dry()) return;
  ctx.on_gpu() ? set_rate_cuda(state, lr, ctx) : set_rate_cpu(state, lr);
}

namespace {

struct Size {
  double elements = 0, grad_bytes = 0, copy_bytes = 0, state_bytes = 0;  // state: of weights and moments
  std::int64_t pieces = 0;
};

Size checked(std::span<const Update> all) {
  Size s;
  const Tensor* copy = nullptr;
  for (const Update& t : all) {
    const auto count = t.grad.count();
    for (const Tensor& x : {t.rest ? t.m : t.master, t.m, t.v})
      check(x.dtype == DType::f32 && x.count() == count, Code::bad_argument,
            "adamw: weight and moments must be fp32 of the gradient's size; one is {} of {} elements, the gradient has {}",
            name_of(x.dtype), x.count(), count);
    check(t.grad.dtype == DType::f32 || (t.copy && t.grad.dtype == t.copy.dtype), Code::bad_argument,
          "adamw: a gradient is {}; it must be fp32 or of the weight's copy's type", name_of(t.grad.dtype));
    check(!t.rest || (!t.master && t.copy.dtype == DType::bf16 && t.rest.dtype == DType::u16 && t.rest.count() == count),
          Code::bad_argument, "adamw: a weight without a master is a bf16 copy and a rest of 16 bits, of {} elements each", count);
    s.elements += double(count), s.grad_bytes += double(t.grad.bytes()), s.pieces = std::max(s.pieces, (count + piece - 1) / piece);
    s.state_bytes += double(count) * (t.rest ? 2 * 2 + 2 + 16 : 24);
    if (!t.copy) continue;
    if (!copy) copy = &t.copy;
    check(t.copy.count() == count && t.copy.dtype == copy->dtype, Code::bad_argument,
          "adamw: a copy is {} of {} elements, it must be {} of {}", name_of(t.copy.dtype), t.copy.count(), name_of(copy->dtype), count);
    s.copy_bytes += double(t.copy.bytes());
  }
  return s;
}

Tensor make_numbers(Context& ctx) { return ctx.arena.make("adamw.numbers", DType::f32, {sizeof(Numbers) / sizeof(float)}); }

void prepare(std::span<const Update> all, const Scratch& scratch, const Tensor& state, const Hyper& h, Context& ctx) {
  if (ctx.dry()) return;
  ctx.on_gpu() ? prepare_cuda(all, scratch, state, h, ctx) : prepare_cpu(all, scratch, state, h, ctx);
}

}  // namespace

void update(std::span<const Update> all, const Tensor& state, const Hyper& h, Context& ctx) {
  const Size size = checked(all);
  auto scope = ctx.arena.scope();
  const Scratch scratch{ctx.arena.make("norm.sums", DType::f64, {ctx.on_gpu() ? norm_blocks : size.pieces}), make_numbers(ctx)};
  {
    const auto op = ctx.note("adamw.norm", {DType::f32}, {2 * size.elements, size.grad_bytes});
    prepare(all, scratch, state, h, ctx);
  }
  advance(all, scratch.numbers, ctx);
}

Tensor begin(const Tensor& state, const Hyper& h, Context& ctx) {
  check(!h.dynamic_scale && h.clip == 0, Code::bad_argument,
        "adamw: clipping and a dynamic loss scale need the norm of all gradients, which an update in parts does not have");
  const Scratch scratch{{}, make_numbers(ctx)};
  prepare({}, scratch, state, h, ctx);
  return scratch.numbers;
}

void advance(std::span<const Update> all, const Tensor& numbers, Context& ctx) {
  const Size size = checked(all);
  const auto op = ctx.note("adamw", {DType::f32}, {15 * size.elements, size.grad_bytes + size.state_bytes + size.copy_bytes});
  if (ctx.dry()) return;
  ctx.on_gpu() ? advance_cuda(all, numbers, ctx) : advance_cpu(all, numbers, ctx);
}

}  // namespace headroom::adamw
