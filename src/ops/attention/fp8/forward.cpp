#include "ops/attention/fp8/forward.h"

#include "ops/attention/checked.h"
#include "ops/attention/fp8/fp8.h"

namespace headroom::attention {

Problem in_fp8(const Problem& in_bf16) {
  check(in_bf16.precision.dtype == DType::bf16, Code::unsupported, "attention: fp8 is made of bf16, whose dtype O has; this problem is {}",
        name_of(in_bf16.precision));
  Problem p = in_bf16;
  p.precision = {DType::e4m3};
  return p;
}

void forward_in_fp8(const Variant& v, const Problem& p, const Forward& t, Context& ctx) {
  const Problem p8 = in_fp8(p);
  check(p);
  check(p, t);
  auto scratch = ctx.arena.scope();
  const auto make = [&](const char* name, DType dtype, const Shape& shape) { return ctx.arena.make(name, dtype, shape); };
  const ToFp8 made{.q = t.q,
                   .k = t.k,
                   .v = t.v,
                   .q8 = make("attention.q8", DType::e4m3, p8.q_shape()),
                   .k8 = make("attention.k8", DType::e4m3, p8.k_shape()),
                   .v8 = make("attention.v8", DType::e4m3, p8.v_shape()),
                   .q_scale = make("attention.q_scale", DType::f32, {p.batch, p.heads}),
                   .k_scale = make("attention.k_scale", DType::f32, {p.batch, p.kv_heads}),
                   .v_scale = make("attention.v_scale", DType::f32, {p.batch, p.kv_heads})};
  to_fp8(p8, made, ctx);
  Forward t8 = t;
  t8.q = made.q8, t8.k = made.k8, t8.v = made.v8;
  t8.with.q_scale = made.q_scale, t8.with.k_scale = made.k_scale, t8.with.v_scale = made.v_scale;
  forward(v, p8, t8, ctx);
}

std::size_t workspace_bytes_in_fp8(const Variant& v, const Problem& p, const Device& device, int workers) {
  Arena arena;
  Context ctx{arena, device};
  ctx.dry_workers = workers;
  const auto of = [&](const Shape& shape) { return Tensor(nullptr, DType::bf16, shape); };
  forward_in_fp8(v, p,
                 {.q = of(p.q_shape()),
                  .k = of(p.k_shape()),
                  .v = of(p.v_shape()),
                  .o = of(p.o_shape()),
                  .lse = Tensor(nullptr, DType::f32, p.lse_shape()),
                  .saved = {},
                  .with = dry_extras(p)},
                 ctx);
  return arena.peak();
}

}  // namespace headroom::attention
