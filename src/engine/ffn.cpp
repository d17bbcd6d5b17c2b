#include "engine/ffn.h"

#include "ops/rmsnorm/rmsnorm.h"
#include "ops/swiglu/swiglu.h"

namespace headroom::engine {

FfnSaved Ffn::make_kept(Keep keep, Context& ctx) const {
  const Formats& formats = products.formats;
  const DType t = formats.stored.dtype;
  FfnSaved s;
  if (keep == Keep::input) return s;
  s.rstd = ctx.arena.make({"norm2.rstd", layer}, DType::f32, {rows});
  s.gate_up = ctx.arena.make({"ffn.gate_up", layer}, t, {rows, 2 * config.ffn});
  const bool everything = keep == Keep::everything, n = everything || keep == Keep::no_product;
  if (formats.quantised()) {
    if (n) s.n_fp8 = Products::make_transposed(formats, Quantised::norm2, rows, config.width, layer, ctx);
    if (everything) s.act_fp8 = Products::make_transposed(formats, Quantised::act, rows, config.ffn, layer, ctx);
  } else {
    if (n) s.n = ctx.arena.make({"norm2.y", layer}, t, {rows, config.width});
    if (everything) s.act = ctx.arena.make({"ffn.act", layer}, t, {rows, config.ffn});
  }
  s.act_kept = everything;
  return s;
}

FfnSaved Ffn::complete(FfnSaved s, Pass pass, Context& ctx) const {
  const Formats& formats = products.formats;
  const DType t = formats.stored.dtype;
  if (!s.rstd) s.rstd = ctx.arena.make({"norm2.rstd", layer}, DType::f32, {rows});
  if (!s.gate_up) s.gate_up = ctx.arena.make({"ffn.gate_up", layer}, t, {rows, 2 * config.ffn});
  if (!s.n) s.n = ctx.arena.make({"norm2.y", layer}, t, {rows, config.width});
  if (!s.act) s.act = ctx.arena.make({"ffn.act", layer}, t, {rows, config.ffn});
  if (formats.quantised() && pass == Pass::backward && !s.n_fp8)
    s.n_fp8 = Products::make_transposed(formats, Quantised::norm2, rows, config.width, layer, ctx);
  return s;
}

void Ffn::forward(const Tensor& h, const ParamStore::Lease& w, const FfnSaved& all, const FfnSaved& have, const Tensor& out,
                  Context& ctx) const {
  const auto here = ctx.inside({"feed-forward", layer});
  Products p(products, layer, w, ctx);
  if (!have.normed()) rmsnorm::forward({h, w[Role::norm2].w, all.n, all.rstd, float(config.norm_eps)}, ctx);
  {
    auto scope = ctx.arena.scope();
    const Read n = p.read_missing(Quantised::norm2, all.n, !have.gate_up, have.n_fp8 ? Scaled() : all.n_fp8);
    if (!have.gate_up) p.forward({"ffn.gate_up", layer}, n, Role::gate_up, all.gate_up);
  }
  if (!out) return;  // computed again for backward, which makes act itself
  swiglu::forward({all.gate_up, all.act}, ctx);
  auto scope = ctx.arena.scope();
  p.forward({"ffn.down", layer}, p.read_missing(Quantised::act, all.act, true, all.act_fp8), Role::down, out, h);
}

// What has been used for the last time gives its place to its own gradient, so backward takes no memory beside the saved tensors, but for
// the gradients of a product that was kept and, where products wait for the update, of the norm's output; and in fp8 for 8-bit copies.
void Ffn::backward(const Tensor& h, const ParamStore::Lease& w, const FfnSaved& all, const Tensor& d, Gradient into_dw,
                   Context& ctx) const {
  const auto here = ctx.inside({"feed-forward", layer});
  auto whole = ctx.arena.scope();
  const Weight norm = w[Role::norm2];
  Products p(products, layer, w, ctx, into_dw);
  {
    auto scope = ctx.arena.scope();
    const bool in_place = !all.act_kept || p.quantised();  // what is kept in fp8 lies elsewhere
    const Tensor dact = in_place ? all.act : ctx.arena.make({"ffn.dact", layer}, all.act.dtype, all.act.shape);
    const Read dy = p.read(Quantised::d_ffn, d, Copies::both);
    p.dx({"ffn.down.dx", layer}, dy, Role::down, dact);
    swiglu::backward({all.gate_up, dact, all.gate_up, all.act_kept ? Tensor() : all.act}, ctx);  // or act again, in its gradient's place
    const Read act = all.act_fp8 ? Read{{}, {}, all.act_fp8} : p.read(Quantised::act, all.act, Copies::transposed);
    p.dw({"ffn.down.dw", layer}, dy, act, Role::down);
    if (p.quantised()) p.finish();  // what it reads ends here, and its weight has been used for the last time
  }
  const Read dgate_up = p.read(Quantised::d_gate_up, all.gate_up, Copies::both);
  p.dw({"ffn.gate_up.dw", layer}, dgate_up, {all.n, {}, all.n_fp8}, Role::gate_up);
  const bool n_is_read = p.waiting() && !p.quantised();
  const Tensor dn = n_is_read ? ctx.arena.make({"norm2.dy", layer}, all.n.dtype, all.n.shape) : all.n;
  p.dx({"ffn.gate_up.dx", layer}, dgate_up, Role::gate_up, dn);
  p.finish();
  rmsnorm::backward({h, norm.w, all.rstd, dn, d, norm.dw, Gradient::accumulate, into_dw}, ctx);
}

}  // namespace headroom::engine
