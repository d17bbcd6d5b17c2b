// q, k and v of one product, key heads each for a group of query heads: every family but DeepSeek's.
#include "engine/counted/passes.h"

namespace headroom::engine::counted {

namespace grouped {
namespace {

std::int64_t width_of(const SelfAttention& a) { return a.q_width() + a.k_width() + a.v_width(); }

void items(const Passes& p, const SelfAttention& a, std::vector<Item>& into) {
  into.push_back({"attention.qkv", p.type(), {p.rows(), width_of(a)}, Keep::no_cheap});
}

void forward(Passes& p, const SelfAttention& a, int layer) {
  p.product("attention.qkv", layer, p.rows(), width_of(a), p.d.width);
  if (a.qkv_bias) p.add_bias(width_of(a));
}

void weight_gradients(Passes& p, const SelfAttention& a, int layer, WeightGradients& g) {
  if (a.qkv_bias) p.bias_gradient(width_of(a));
  g.add("attention.qkv.dw", layer, p.rows(), width_of(a), p.d.width);
}

void into_stream(Passes& p, const SelfAttention& a, int layer) {
  p.product_dx("attention.qkv.dx", layer, p.rows(), width_of(a), p.d.width, 1, p.d.norms_before ? 0.0f : 1.0f);
}

}  // namespace
}  // namespace grouped

const AttentionInputs grouped_inputs{[](const SelfAttention& a) { return !a.latent(); },
                                     grouped::items,
                                     grouped::width_of,
                                     grouped::forward,
                                     grouped::weight_gradients,
                                     grouped::into_stream};

}  // namespace headroom::engine::counted
