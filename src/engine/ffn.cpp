#include "engine/ffn.h"

#include "engine/weight_products.h"
#include "ops/matmul/matmul.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/swiglu/swiglu.h"

namespace headroom::engine {

using matmul::transposed;

FfnSaved Ffn::make_kept(Keep keep, Context& ctx) const {
  FfnSaved s;
  if (keep == Keep::input) return s;
  s.rstd = ctx.arena.make({"norm2.rstd", layer}, DType::f32, {rows});
  s.gate_up = ctx.arena.make({"ffn.gate_up", layer}, precision.dtype, {rows, 2 * config.ffn});
  if (keep == Keep::everything || keep == Keep::no_product) s.n = ctx.arena.make({"norm2.y", layer}, precision.dtype, {rows, config.width});
  if (keep == Keep::everything) {
    s.act = ctx.arena.make({"ffn.act", layer}, precision.dtype, {rows, config.ffn});
    s.act_kept = true;
  }
  return s;
}

FfnSaved Ffn::complete(FfnSaved s, Context& ctx) const {
  if (!s.rstd) s.rstd = ctx.arena.make({"norm2.rstd", layer}, DType::f32, {rows});
  if (!s.gate_up) s.gate_up = ctx.arena.make({"ffn.gate_up", layer}, precision.dtype, {rows, 2 * config.ffn});
  if (!s.n) s.n = ctx.arena.make({"norm2.y", layer}, precision.dtype, {rows, config.width});
  if (!s.act) s.act = ctx.arena.make({"ffn.act", layer}, precision.dtype, {rows, config.ffn});
  return s;
}

void Ffn::forward(const Tensor& h, const ParamStore::Lease& w, const FfnSaved& all, const FfnSaved& have, const Tensor& out,
                  Context& ctx) const {
  const auto here = ctx.inside({"feed-forward", layer});
  if (!have.n) rmsnorm::forward({h, w[Role::norm2].w, all.n, all.rstd, float(config.norm_eps)}, ctx);
  if (!have.gate_up)
    matmul::multiply({all.n, transposed(w[Role::gate_up].w), all.gate_up, 1, 0, precision.math}, ctx, {"ffn.gate_up", layer});
  if (!out) return;  // computed again for backward, which makes act itself
  swiglu::forward({all.gate_up, all.act}, ctx);
  matmul::multiply({all.act, transposed(w[Role::down].w), out, 1, 1, precision.math, h}, ctx, {"ffn.down", layer});
}

// What has been used for the last time gives its place to its own gradient, so backward takes no memory beside the saved tensors, but for
// the gradients of a product that was kept and, where products wait for the update, of the norm's output.
void Ffn::backward(const Tensor& h, const ParamStore::Lease& w, const FfnSaved& all, const Tensor& d, Gradient into_dw,
                   Context& ctx) const {
  const auto here = ctx.inside({"feed-forward", layer});
  auto whole = ctx.arena.scope();
  const Weight down = w[Role::down], gate_up = w[Role::gate_up], norm = w[Role::norm2];
  WeightProducts products(precision.math, into_dw, ctx);
  {
    auto scope = ctx.arena.scope();
    const Tensor dact = all.act_kept ? ctx.arena.make({"ffn.dact", layer}, all.act.dtype, all.act.shape) : all.act;
    matmul::multiply({d, down.w, dact, 1, 0, precision.math}, ctx, {"ffn.down.dx", layer});
    swiglu::backward({all.gate_up, dact, all.gate_up, all.act_kept ? Tensor() : all.act}, ctx);  // or act again, in its gradient's place
  }
  products.add({"ffn.down.dw", layer}, d, all.act, down);
  products.add({"ffn.gate_up.dw", layer}, all.gate_up, all.n, gate_up);
  const Tensor dn = products.waiting() ? ctx.arena.make({"norm2.dy", layer}, all.n.dtype, all.n.shape) : all.n;
  matmul::multiply({all.gate_up, gate_up.w, dn, 1, 0, precision.math}, ctx, {"ffn.gate_up.dx", layer});
  products.finish();
  rmsnorm::backward({h, norm.w, all.rstd, dn, d, norm.dw, Gradient::accumulate, into_dw}, ctx);
}

}  // namespace headroom::engine
