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

void update(std::span<const Update> all, const Tensor& state, const Hyper& h, Context& ctx) {
  double elements = 0, copy_bytes = 0;
  std::int64_t pieces = 0;
  const Tensor* copy = nullptr;
  for (const Update& t : all) {
    const auto count = t.grad.count();
    for (const Tensor& x : {t.grad, t.master, t.m, t.v})
      check(x.dtype == DType::f32 && x.count() == count, Code::bad_argument,
            "adamw: gradient, weight and moments must be fp32 of one size; one is {} of {} elements, the gradient has {}", name_of(x.dtype),
            x.count(), count);
    elements += double(count), pieces = std::max(pieces, (count + piece - 1) / piece);
    if (!t.copy) continue;
    if (!copy) copy = &t.copy;
    check(t.copy.count() == count && t.copy.dtype == copy->dtype, Code::bad_argument,
          "adamw: a copy is {} of {} elements, it must be {} of {}", name_of(t.copy.dtype), t.copy.count(), name_of(copy->dtype), count);
    copy_bytes += double(t.copy.bytes());
  }
  auto scope = ctx.arena.scope();
  Scratch scratch{ctx.arena.make("norm.sums", DType::f64, {ctx.on_gpu() ? norm_blocks : pieces}), {}};
  if (ctx.on_gpu()) scratch.numbers = ctx.arena.make("adamw.numbers", DType::f32, {sizeof(Numbers) / sizeof(float)});
  const auto op = ctx.note("adamw", {DType::f32}, {17 * elements, 32 * elements + copy_bytes});  // the norm's pass included
  if (ctx.dry()) return;
  ctx.on_gpu() ? update_cuda(all, scratch, state, h, ctx) : update_cpu(all, scratch, state, h, ctx);
}

}  // namespace headroom::adamw
