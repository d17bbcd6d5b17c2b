// One layer that every token takes.
#include "engine/counted/passes.h"

namespace headroom::engine::counted {

namespace dense {
namespace {

void items(const Passes& p, const FeedForward& f, std::vector<Item>& into) {
  into.push_back({"ffn.gate_up", p.type(), {p.rows(), f.in_width(f.width)}, Keep::no_attention_inputs});
  into.push_back({"ffn.act", p.type(), {p.rows(), f.width}, Keep::everything});
}

void forward(Passes& p, const FeedForward& f, int layer, Half half) {
  const std::int64_t n = p.rows(), in = f.in_width(f.width), width = p.d.width;
  if (half.lacks(Keep::no_attention_inputs)) {
    p.product("ffn.gate_up", layer, n, in, width);
    if (f.bias) p.add_bias(in);
  }
  if (p.d.norms_after ? half.lacks(Keep::no_cheap) : half.out) {
    activate(p, f, n, f.width);
    p.product("ffn.down", layer, n, width, f.width, 1, p.d.norms_after ? 0.0f : 1.0f);
    if (f.bias) p.add_bias(width);
  }
}

void backward(Passes& p, const FeedForward& f, int layer, bool act_kept, WeightGradients& g) {
  const std::int64_t n = p.rows(), in = f.in_width(f.width), width = p.d.width;
  activation_gradient(p, f, {"ffn.dact", "ffn.down.dx"}, layer, n, f.width, act_kept);
  if (f.bias) p.bias_gradient(width);
  g.add("ffn.down.dw", layer, n, width, f.width);
  if (f.bias) p.bias_gradient(in);
  g.add("ffn.gate_up.dw", layer, n, in, width);
  if (g.none() && p.d.ffn_norm()) (void)p.make("norm2.dy", layer, p.type(), {n, width});
  p.product_dx("ffn.gate_up.dx", layer, n, in, width, 1, p.d.ffn_norm() ? 0.0f : 1.0f);
}

}  // namespace
}  // namespace dense

const FeedForwardKind dense_layer{[](const FeedForward& f) { return f.experts == 0; }, dense::items, dense::forward, dense::backward};

}  // namespace headroom::engine::counted
