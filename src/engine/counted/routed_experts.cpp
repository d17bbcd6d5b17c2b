// Experts, of which a router chooses a few for each token, and one that every token takes beside them.
#include <algorithm>

#include "engine/counted/passes.h"

namespace headroom::engine::counted {

namespace experts {
namespace {

// Experts' weights that the routed rows touch, at most all.
std::int64_t touched(const Passes& p, const FeedForward& f) { return std::min(f.experts, p.rows() * f.experts_of_token); }

void items(const Passes& p, const FeedForward& f, std::vector<Item>& into) {
  const DType t = p.type();
  const std::int64_t n = p.rows(), routed = n * f.experts_of_token, width = p.d.width;
  into.push_back({"router.logits", DType::f32, {n, f.experts}, Keep::no_attention_inputs});
  into.push_back({"router.weights", DType::f32, {n, f.experts_of_token}, Keep::no_attention_inputs});
  into.push_back({"router.experts", DType::i32, {n, f.experts_of_token}, Keep::no_attention_inputs});
  into.push_back({"experts.x", t, {routed, width}, Keep::no_product});
  into.push_back({"experts.gate_up", t, {routed, f.in_width(f.width)}, Keep::no_attention_inputs});
  into.push_back({"experts.act", t, {routed, f.width}, Keep::everything});
  into.push_back({"experts.y", t, {routed, width}, Keep::no_cheap});
  if (f.shared_width > 0) {
    into.push_back({"shared.gate_up", t, {n, f.in_width(f.shared_width)}, Keep::no_attention_inputs});
    into.push_back({"shared.act", t, {n, f.shared_width}, Keep::everything});
  }
  if (f.shared_gate) into.push_back({"shared.y", t, {n, width}, Keep::no_cheap});
}

void forward(Passes& p, const FeedForward& f, int layer, Half half) {
  const std::int64_t n = p.rows(), routed = n * f.experts_of_token, width = p.d.width;
  const bool again = half.lacks(Keep::no_attention_inputs);
  if (again) {
    p.product("router", layer, n, f.experts, width);
    const auto op = p.ctx.note({"router.choose", layer}, p.precision, {8.0 * double(n * f.experts), 4.0 * double(n * f.experts)});
  }
  if (half.lacks(Keep::no_product)) p.elementwise("experts.x", layer, 2.0 * double(routed) * double(width));
  if (again) {
    p.product("experts.gate_up", layer, routed, f.in_width(f.width), width, touched(p, f));
    if (f.shared_width > 0) p.product("shared.gate_up", layer, n, f.in_width(f.shared_width), width);
  }
  if (!half.out && !half.lacks(Keep::no_cheap)) return;  // y of the experts is kept
  activate(p, f, routed, f.width);
  p.product("experts.down", layer, routed, width, f.width, touched(p, f));
  if (f.shared_width > 0) activate(p, f, n, f.shared_width), p.product("shared.down", layer, n, width, f.shared_width);
  p.elementwise("experts.combine", layer, double(routed + n) * double(width), 2.0 * double(routed) * double(width));
}

void shared_backward(Passes& p, const FeedForward& f, int layer, bool act_kept, WeightGradients& g) {
  const std::int64_t n = p.rows(), in = f.in_width(f.shared_width), width = p.d.width;
  activation_gradient(p, f, {"shared.dact", "shared.down.dx"}, layer, n, f.shared_width, act_kept);
  g.add("shared.down.dw", layer, n, width, f.shared_width);
  g.add("shared.gate_up.dw", layer, n, in, width);
  p.product_dx("shared.gate_up.dx", layer, n, in, width);
}

void backward(Passes& p, const FeedForward& f, int layer, bool act_kept, WeightGradients& g) {
  const std::int64_t n = p.rows(), routed = n * f.experts_of_token, in = f.in_width(f.width), width = p.d.width;
  const std::int64_t weights = std::max<std::int64_t>(f.experts, 2);
  (void)p.make("experts.dy", layer, p.type(), {routed, width});
  p.elementwise("experts.dy", layer, 2.0 * double(routed) * double(width) + double(n) * double(width));
  (void)p.make("router.dlogits", layer, DType::f32, {n, f.experts});
  activation_gradient(p, f, {"experts.dact", "experts.down.dx"}, layer, routed, f.width, act_kept, touched(p, f));
  g.add("experts.down.dw", layer, routed, width, f.width, weights);
  g.add("experts.gate_up.dw", layer, routed, in, width, weights);
  p.product_dx("experts.gate_up.dx", layer, routed, in, width, touched(p, f));  // in the place of experts.x
  if (f.shared_width > 0) shared_backward(p, f, layer, act_kept, g);
  g.add("router.dw", layer, n, f.experts, width);
  p.product_dx("router.dx", layer, n, f.experts, width);
  if (!p.d.ffn_norm()) (void)p.make("norm2.dy", layer, p.type(), {n, width});
  p.elementwise("experts.dx", layer, double(routed + n) * double(width));
}

}  // namespace
}  // namespace experts

const FeedForwardKind routed_experts{[](const FeedForward& f) { return f.experts > 0; }, experts::items, experts::forward,
                                     experts::backward};

}  // namespace headroom::engine::counted
