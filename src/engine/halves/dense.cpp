#include "engine/halves/dense.h"

#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/swiglu/swiglu.h"

namespace headroom::engine {

void Dense::make_kept(Saved& s, Keep keep, Context& ctx) const {
  const Formats& formats = products.formats;
  if (keep == Keep::gate_up_fp8)
    s.gate_up_fp8 = quantise::make({"ffn.gate_up.kept", layer}, {DType::e4m3, ScaleKind::run}, rows, in_width(), ctx);
  else
    s.gate_up = ctx.arena.make({"ffn.gate_up", layer}, stored(), {rows, in_width()});
  s.act_kept = keep == Keep::everything;
  if (!s.act_kept) return;
  if (formats.quantised())
    s.act_fp8 = Products::make_transposed(formats, Quantised::act, rows, shape.width, layer, ctx);
  else
    s.act = ctx.arena.make({"ffn.act", layer}, stored(), {rows, shape.width});
}

void Dense::complete(Saved& s, Pass pass, Context& ctx) const {
  s.act_by_first = pass == Pass::forward && gated(ctx);  // backward makes act again with its gradients
  if (!s.gate_up) s.gate_up = ctx.arena.make({"ffn.gate_up", layer}, stored(), {rows, in_width()});
  if (!s.act && !(pass == Pass::forward && as_made(quantise::Of::swiglu, ctx)))
    s.act = ctx.arena.make({"ffn.act", layer}, stored(), {rows, shape.width});
}

void activate(const FeedForward& f, const Tensor& in, const Tensor& act, Context& ctx) {
  if (f.swiglu()) return swiglu::forward({in, act}, ctx);
  activation::forward({in, act, f.function}, ctx);
}

void activate_backward(const FeedForward& f, const Tensor& in, const Tensor& dact, const Tensor& again, Context& ctx) {
  if (f.swiglu()) return swiglu::backward({in, dact, in, again}, ctx);
  activation::backward({in, dact, in, again, f.function}, ctx);
}

bool Dense::gated(Context& ctx) const {
  return shape.swiglu() && !shape.bias && products.gated({rows, decoder.width, shape.width}, ctx.device);
}

// A bias's gradient reads what would not be stored.
bool Dense::as_made(quantise::Of of, Context& ctx) const {
  const std::int64_t columns = of == quantise::Of::swiglu ? shape.width : in_width();
  return shape.swiglu() && !shape.bias && products.as_made(of, rows, columns, stored(), ctx.device);
}

void Dense::first(Products& p, const Read& in, const Saved& all, const Saved&, Context& ctx) const {
  const Name name{"ffn.gate_up", layer};
  if (!gated(ctx)) return p.forward(name, in, WeightRole::gate_up, all.gate_up);
  p.gated_forward(name, in, WeightRole::gate_up, all.gate_up, all.act_by_first ? all.act : Tensor());
}

void Dense::middle(Products&, const ParamStore::Lease& w, const Saved& all, const Saved& have, Context& ctx) const {
  if (shape.bias && multiplies(have)) bias::add(all.gate_up, w[WeightRole::gate_up_bias].w, ctx);
  if (have.gate_up_fp8)
    quantise::dequantise(have.gate_up_fp8, all.gate_up, ctx, {"ffn.gate_up.again", layer});
  else if (all.gate_up_fp8)
    quantise::quantise({.x = all.gate_up, .as_is = all.gate_up_fp8}, ctx, {"ffn.gate_up.keep", layer});
}

void Dense::last(Products& p, const ParamStore::Lease& w, const Saved& all, const Tensor& to, const Tensor& add, Context& ctx) const {
  const bool made = as_made(quantise::Of::swiglu, ctx);
  if (!made && !all.act_by_first) activate(shape, all.gate_up, all.act, ctx);
  {
    auto scope = ctx.arena.scope();
    const quantise::Request from = made ? quantise::Request{.x = all.gate_up, .of = quantise::Of::swiglu} : quantise::Request{all.act};
    const Read x = p.read_missing(Quantised::act, from, true, all.act_fp8);
    p.forward({"ffn.down", layer}, x, WeightRole::down, to, add);
  }
  if (shape.bias) bias::add(to, w[WeightRole::down_bias].w, ctx);
}

Read Dense::backward(Products& p, const ParamStore::Lease& w, const Saved& all, const Tensor& dy, Gradient into_dw, Context& ctx) const {
  if (shape.bias) bias::backward(dy, w[WeightRole::down_bias].dw, into_dw, ctx);
  const bool made = as_made(quantise::Of::swiglu, ctx) && as_made(quantise::Of::swiglu_gradient, ctx);  // then gate_up stays what it was
  {
    auto scope = ctx.arena.scope();
    const bool in_place = !all.act_kept || p.quantised();  // what is kept in fp8 lies elsewhere
    const Name dx{"ffn.down.dx", layer};
    const Read read = p.read(Quantised::d_ffn, dy, Copies::both);
    if (gated(ctx)) {  // in the place of gate_up, as below
      p.gated_dx(dx, read, WeightRole::down, all.gate_up, all.act_kept ? Tensor() : all.act);
    } else {
      auto dact_scope = ctx.arena.scope();
      const Tensor dact = in_place ? all.act : ctx.arena.make({"ffn.dact", layer}, all.act.dtype, all.act.shape);
      p.dx(dx, read, WeightRole::down, dact);
      if (!made) activate_backward(shape, all.gate_up, dact, all.act_kept ? Tensor() : all.act, ctx);  // in the place of its gradient
    }
    const Read act = all.act_fp8 ? Read{{}, {}, all.act_fp8}
                     : made      ? p.read(Quantised::act, {.x = all.gate_up, .of = quantise::Of::swiglu}, Copies::transposed)
                                 : p.read(Quantised::act, all.act, Copies::transposed);
    p.dw({"ffn.down.dw", layer}, read, act, WeightRole::down);
    if (p.quantised()) p.finish();  // what it reads ends here, and its weight has been used for the last time
  }
  if (shape.bias) bias::backward(all.gate_up, w[WeightRole::gate_up_bias].dw, into_dw, ctx);
  return made ? p.read(Quantised::d_gate_up, {.x = all.gate_up, .of = quantise::Of::swiglu_gradient, .dact = all.act}, Copies::both)
              : p.read(Quantised::d_gate_up, all.gate_up, Copies::both);
}

}  // namespace headroom::engine
