#include "engine/halves/experts.h"

namespace headroom::engine {

template <class Wanted>
void Experts::make_missing(Saved& s, const Wanted& wanted, Context& ctx) const {
  const auto make = [&](Tensor& t, const char* name, DType type, Shape of, Keep last) {
    if (!t && wanted(last)) t = ctx.arena.make({name, layer}, type, of);
  };
  const std::int64_t each = shape.experts_of_token, routed = rows * each, width = decoder.width;
  make(s.routing.logits, "router.logits", DType::f32, {rows, shape.experts}, Keep::no_attention_inputs);
  make(s.routing.weights, "router.weights", DType::f32, {rows, each}, Keep::no_attention_inputs);
  make(s.routing.numbers, "router.experts", DType::i32, {rows, each}, Keep::no_attention_inputs);
  make(s.x, "experts.x", stored(), {routed, width}, Keep::no_product);
  make(s.gate_up, "experts.gate_up", stored(), {routed, shape.in_width(shape.width)}, Keep::no_attention_inputs);
  make(s.act, "experts.act", stored(), {routed, shape.width}, Keep::everything);
  make(s.routed_y, "experts.y", stored(), {routed, width}, Keep::no_cheap);
  if (shared()) {
    make(s.shared_gate_up, "shared.gate_up", stored(), {rows, shape.in_width(shape.shared_width)}, Keep::no_attention_inputs);
    make(s.shared_act, "shared.act", stored(), {rows, shape.shared_width}, Keep::everything);
  }
  if (shape.shared_gate) make(s.shared_y, "shared.y", stored(), {rows, width}, Keep::no_cheap);
}

void Experts::make_kept(Saved& s, Keep keep, Context& ctx) const {
  make_missing(
      s, [&](Keep last) { return keep <= last; }, ctx);
  s.act_kept = keep == Keep::everything;
}

void Experts::complete(Saved& s, Pass, Context& ctx) const {
  make_missing(
      s, [](Keep) { return true; }, ctx);
}

void Experts::first(Products& p, const Read& in, const Saved& all, const Saved& have, Context& ctx) const {
  if (!have.gate_up) {
    p.forward({"router", layer}, in, WeightRole::router, all.routing.logits);
    experts::choose(all.routing, ctx, {"router.choose", layer});
  }
  experts::gather(in.x, all.routing, all.x, ctx, {"experts.x", layer});
  if (have.gate_up) return;
  p.forward({"experts.gate_up", layer}, {all.x}, WeightRole::experts_gate_up, all.gate_up);
  if (shared()) p.forward({"shared.gate_up", layer}, in, WeightRole::shared_gate_up, all.shared_gate_up);
}

void Experts::middle(Products& p, const ParamStore::Lease&, const Saved& all, const Saved& have, Context& ctx) const {
  if (have.routed_y) return;
  activate(shape, all.gate_up, all.act, ctx);
  p.forward({"experts.down", layer}, {all.act}, WeightRole::experts_down, all.routed_y);
  if (!shape.shared_gate) return;
  activate(shape, all.shared_gate_up, all.shared_act, ctx);
  p.forward({"shared.down", layer}, {all.shared_act}, WeightRole::shared_down, all.shared_y);
}

void Experts::last(Products& p, const ParamStore::Lease&, const Saved& all, const Tensor& to, const Tensor& add, Context& ctx) const {
  const bool adds = shared() && !shape.shared_gate;
  if (adds) {
    activate(shape, all.shared_gate_up, all.shared_act, ctx);
    p.forward({"shared.down", layer}, {all.shared_act}, WeightRole::shared_down, to, add);
  }
  experts::combine({all.routed_y, all.shared_y, adds ? to : add, to}, all.routing, ctx, {"experts.combine", layer});
}

Experts::Gradients Experts::backward(Products& p, const ParamStore::Lease&, const Saved& all, const Tensor& dy, Gradient,
                                     Context& ctx) const {
  const Tensor d_routed = ctx.arena.make({"experts.dy", layer}, stored(), all.routed_y.shape),
               dlogits = ctx.arena.make({"router.dlogits", layer}, DType::f32, all.routing.logits.shape);
  experts::combine_backward(dy, all.routed_y, all.routing, d_routed, dlogits, ctx, {"experts.dy", layer});
  // To the gradient of what the activation took, in its place.
  const auto through_act = [&](const char* dact_name, const char* dx, const char* dw, const Tensor& d, WeightRole down, const Tensor& in,
                               const Tensor& act) {
    auto scope = ctx.arena.scope();
    const Tensor dact = all.act_kept ? ctx.arena.make({dact_name, layer}, stored(), act.shape) : act;
    p.dx({dx, layer}, {d}, down, dact);
    activate_backward(shape, in, dact, all.act_kept ? Tensor() : act, ctx);
    p.dw({dw, layer}, {d}, {act}, down);
  };
  through_act("experts.dact", "experts.down.dx", "experts.down.dw", d_routed, WeightRole::experts_down, all.gate_up, all.act);
  p.dw({"experts.gate_up.dw", layer}, {all.gate_up}, {all.x}, WeightRole::experts_gate_up);
  p.dx({"experts.gate_up.dx", layer}, {all.gate_up}, WeightRole::experts_gate_up, all.x);  // in the place of what it read
  if (shared())
    through_act("shared.dact", "shared.down.dx", "shared.down.dw", dy, WeightRole::shared_down, all.shared_gate_up, all.shared_act);
  return {Tensor(dlogits.data, stored(), dlogits.shape), all.shared_gate_up, all.x, all.routing};  // rounded in its place
}

void Experts::first_dw(Products& p, const Gradients& d, const Read& n) const {
  if (shared()) p.dw({"shared.gate_up.dw", layer}, {d.shared_gate_up}, n, WeightRole::shared_gate_up);
  p.dw({"router.dw", layer}, {d.logits}, n, WeightRole::router);
}

void Experts::first_dx(Products& p, const Gradients& d, const Tensor& to, Gradient into, Context& ctx) const {
  p.dx({"router.dx", layer}, {d.logits}, WeightRole::router, to, into);
  if (shared()) p.dx({"shared.gate_up.dx", layer}, {d.shared_gate_up}, WeightRole::shared_gate_up, to, Gradient::accumulate);
  experts::gather_backward(d.x, d.routing, to, ctx, {"experts.dx", layer});
}

}  // namespace headroom::engine
