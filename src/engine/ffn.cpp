#include "engine/ffn.h"

#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/swiglu/swiglu.h"

namespace headroom::engine {

FfnSaved Ffn::make_kept(Keep keep, Context& ctx) const {
  const Formats& formats = products.formats;
  const DType t = formats.stored.dtype;
  FfnSaved s;
  if (keep == Keep::input) return s;
  if (decoder.norms_before) s.stats = before().make(ctx);
  if (keep == Keep::gate_up_fp8)
    s.gate_up_fp8 = quantise::make({"ffn.gate_up.kept", layer}, {DType::e4m3, ScaleKind::run}, rows, shape.in_width(shape.width), ctx);
  else
    s.gate_up = ctx.arena.make({"ffn.gate_up", layer}, t, {rows, shape.in_width(shape.width)});
  if (decoder.norms_after) s.after_stats = after().make(ctx);
  if (decoder.norms_after && set_of(keep) <= Keep::no_cheap) s.y = ctx.arena.make({"ffn.out", layer}, t, {rows, decoder.width});
  const bool everything = keep == Keep::everything, n = keep <= Keep::no_product && decoder.norms_before;
  if (formats.quantised()) {
    if (n) s.n_fp8 = Products::make_transposed(formats, Quantised::norm2, rows, decoder.width, layer, ctx);
    if (everything) s.act_fp8 = Products::make_transposed(formats, Quantised::act, rows, shape.width, layer, ctx);
  } else {
    if (n) s.n = ctx.arena.make({"norm2.y", layer}, t, {rows, decoder.width});
    if (everything) s.act = ctx.arena.make({"ffn.act", layer}, t, {rows, shape.width});
  }
  s.act_kept = everything;
  return s;
}

FfnSaved Ffn::complete(FfnSaved s, Pass pass, Context& ctx) const {
  const Formats& formats = products.formats;
  const DType t = formats.stored.dtype;
  if (!s.stats && decoder.norms_before) s.stats = before().make(ctx);
  if (!s.gate_up) s.gate_up = ctx.arena.make({"ffn.gate_up", layer}, t, {rows, shape.in_width(shape.width)});
  if (!s.after_stats && decoder.norms_after) s.after_stats = after().make(ctx);
  if (!s.y && decoder.norms_after) s.y = ctx.arena.make({"ffn.out", layer}, t, {rows, decoder.width});
  if (!s.n && decoder.norms_before && !before().as_made(products, ctx.device))
    s.n = ctx.arena.make({"norm2.y", layer}, t, {rows, decoder.width});
  if (!s.act && !(pass == Pass::forward && as_made(quantise::Of::swiglu, ctx)))
    s.act = ctx.arena.make({"ffn.act", layer}, t, {rows, shape.width});
  if (formats.quantised() && pass == Pass::backward && !s.n_fp8)
    s.n_fp8 = Products::make_transposed(formats, Quantised::norm2, rows, decoder.width, layer, ctx);
  return s;
}

void Ffn::act(const FfnSaved& all, Context& ctx) const {
  if (shape.swiglu()) return swiglu::forward({all.gate_up, all.act}, ctx);
  activation::forward({all.gate_up, all.act, shape.function}, ctx);
}

// The gradient takes the place of what it is of; act is made again in its gradient's place where it was not kept.
void Ffn::act_backward(const FfnSaved& all, const Tensor& dact, Context& ctx) const {
  const Tensor again = all.act_kept ? Tensor() : all.act;
  if (shape.swiglu()) return swiglu::backward({all.gate_up, dact, all.gate_up, again}, ctx);
  activation::backward({all.gate_up, dact, all.gate_up, again, shape.function}, ctx);
}

// A bias's gradient reads what would not be stored.
bool Ffn::as_made(quantise::Of of, Context& ctx) const {
  const std::int64_t columns = of == quantise::Of::swiglu ? shape.width : shape.in_width(shape.width);
  return shape.swiglu() && !shape.bias && products.as_made(of, rows, columns, products.formats.stored.dtype, ctx.device);
}

void Ffn::forward(const Tensor& h, const ParamStore::Lease& w, const FfnSaved& all, const FfnSaved& have, const Tensor& out,
                  Context& ctx) const {
  const auto here = ctx.inside({"feed-forward", layer});
  Products p(products, layer, w, ctx);
  const bool norm_as_made = decoder.norms_before && before().as_made(products, ctx.device);
  if (norm_as_made && !have.stats) before().measure(h, w, all.stats, ctx);
  if (decoder.norms_before && !norm_as_made && !have.normed()) before().forward(h, w, all.n, all.stats, ctx);
  {
    auto scope = ctx.arena.scope();
    const bool multiplies = !have.gate_up && !have.gate_up_fp8;
    const quantise::Request from = norm_as_made ? before().made(h, w, all.stats) : quantise::Request{decoder.norms_before ? all.n : h};
    const Read in = p.read_missing(Quantised::norm2, from, multiplies, have.n_fp8 ? Scaled() : all.n_fp8);
    if (multiplies) {
      p.forward({"ffn.gate_up", layer}, in, Role::gate_up, all.gate_up);
      if (shape.bias) bias::add(all.gate_up, w[Role::gate_up_bias].w, ctx);
    }
  }
  if (have.gate_up_fp8)
    quantise::dequantise(have.gate_up_fp8, all.gate_up, ctx, {"ffn.gate_up.again", layer});
  else if (all.gate_up_fp8)
    quantise::quantise({.x = all.gate_up, .as_is = all.gate_up_fp8}, ctx, {"ffn.gate_up.keep", layer});
  const auto down = [&](const Tensor& to, const Tensor& add) {
    const bool act_as_made = as_made(quantise::Of::swiglu, ctx);
    if (!act_as_made) act(all, ctx);
    {
      auto scope = ctx.arena.scope();
      const quantise::Request from =
          act_as_made ? quantise::Request{.x = all.gate_up, .of = quantise::Of::swiglu} : quantise::Request{all.act};
      const Read x = p.read_missing(Quantised::act, from, true, all.act_fp8);
      p.forward({"ffn.down", layer}, x, Role::down, to, add);
    }
    if (shape.bias) bias::add(to, w[Role::down_bias].w, ctx);
  };
  if (decoder.norms_after) {
    if (!have.y) down(all.y, {});
    if (out) return after().forward(all.y, w, out, all.after_stats, ctx, h);
    if (have.after_stats) return;
    auto scope = ctx.arena.scope();  // backward needs what the norm found, not what it made
    after().forward(all.y, w, ctx.arena.make({"ffn.normed", layer}, all.y.dtype, all.y.shape), all.after_stats, ctx);
    return;
  }
  if (!out) return;  // computed again for backward, which makes act itself
  down(out, h);
}

// What has been used for the last time gives its place to its own gradient, so backward takes no memory beside the saved tensors, but for
// the gradients of a product that was kept, of what a norm after takes and, where products wait for the update, of the norm's output; and in
// fp8 for 8-bit copies.
void Ffn::backward(const Tensor& h, const ParamStore::Lease& w, const FfnSaved& all, const Tensor& d, Gradient into_dw,
                   Context& ctx) const {
  const auto here = ctx.inside({"feed-forward", layer});
  auto whole = ctx.arena.scope();
  Products p(products, layer, w, ctx, into_dw);
  Tensor dy = d;
  if (decoder.norms_after) {
    dy = ctx.arena.make({"ffn.dout", layer}, d.dtype, d.shape);
    after().backward(all.y, w, all.after_stats, d, dy, Gradient::overwrite, into_dw, ctx);
  }
  if (shape.bias) bias::backward(dy, w[Role::down_bias].dw, into_dw, ctx);
  const bool made = as_made(quantise::Of::swiglu, ctx) && as_made(quantise::Of::swiglu_gradient, ctx);  // then gate_up stays what it was
  {
    auto scope = ctx.arena.scope();
    const bool in_place = !all.act_kept || p.quantised();  // what is kept in fp8 lies elsewhere
    const Tensor dact = in_place ? all.act : ctx.arena.make({"ffn.dact", layer}, all.act.dtype, all.act.shape);
    const Read read = p.read(Quantised::d_ffn, dy, Copies::both);
    p.dx({"ffn.down.dx", layer}, read, Role::down, dact);
    if (!made) act_backward(all, dact, ctx);
    const Read act = all.act_fp8 ? Read{{}, {}, all.act_fp8}
                     : made      ? p.read(Quantised::act, {.x = all.gate_up, .of = quantise::Of::swiglu}, Copies::transposed)
                                 : p.read(Quantised::act, all.act, Copies::transposed);
    p.dw({"ffn.down.dw", layer}, read, act, Role::down);
    if (p.quantised()) p.finish();  // what it reads ends here, and its weight has been used for the last time
  }
  if (shape.bias) bias::backward(all.gate_up, w[Role::gate_up_bias].dw, into_dw, ctx);
  const Read read =
      made ? p.read(Quantised::d_gate_up, {.x = all.gate_up, .of = quantise::Of::swiglu_gradient, .dact = all.act}, Copies::both)
           : p.read(Quantised::d_gate_up, all.gate_up, Copies::both);
  p.dw({"ffn.gate_up.dw", layer}, read, {decoder.norms_before ? all.n : h, {}, all.n_fp8}, Role::gate_up);
  if (!decoder.norms_before) {  // then there is a norm after: dy, which a waiting product reads, is not d
    p.dx({"ffn.gate_up.dx", layer}, read, Role::gate_up, d, Gradient::accumulate);
    return p.finish();
  }
  const bool takes_its_place = all.n && (p.quantised() || !p.waiting());
  const Tensor dn = takes_its_place ? all.n : ctx.arena.make({"norm2.dy", layer}, d.dtype, d.shape);
  p.dx({"ffn.gate_up.dx", layer}, read, Role::gate_up, dn);
  p.finish();
  before().backward(h, w, all.stats, dn, d, Gradient::accumulate, into_dw, ctx);
}

}  // namespace headroom::engine
