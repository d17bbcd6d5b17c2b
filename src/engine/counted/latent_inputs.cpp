// q, k and v by way of latents, DeepSeek's: a product down to a few numbers a token, a norm, a product up to all heads.
#include "engine/counted/passes.h"

namespace headroom::engine::counted {

namespace latent {
namespace {

std::int64_t down(const SelfAttention& a) { return a.kv_rank + a.rope_dim; }
std::int64_t up(const SelfAttention& a) { return a.heads * (a.head_dim - a.rope_dim + a.value_dim); }
std::int64_t width_of(const SelfAttention& a) { return 2 * a.q_width() + a.out_width(); }

void items(const Passes& p, const SelfAttention& a, std::vector<Item>& into) {
  const DType t = p.type();
  const std::int64_t n = p.rows();
  if (a.q_rank > 0) {
    into.push_back({"attention.q_latent", t, {n, a.q_rank}, Keep::no_cheap});
    into.push_back({"attention.q_latent_norm", t, {n, a.q_rank}, Keep::no_product});
  }
  into.push_back({"attention.kv_latent", t, {n, down(a)}, Keep::no_cheap});
  into.push_back({"attention.kv_latent_norm", t, {n, a.kv_rank}, Keep::no_product});
  into.push_back({"attention.q", t, {n, a.q_width()}, Keep::no_cheap});
  into.push_back({"attention.k", t, {n, a.q_width()}, Keep::no_cheap});
  into.push_back({"attention.v", t, {n, a.out_width()}, Keep::no_cheap});
}

void forward(Passes& p, const SelfAttention& a, int layer) {
  const std::int64_t n = p.rows(), width = p.d.width;
  if (a.q_rank > 0) {
    p.product("attention.q_down", layer, n, a.q_rank, width);
    p.norm(view(p.type(), {n, a.q_rank}), a.q_rank);
    p.product("attention.q_up", layer, n, a.q_width(), a.q_rank);
  } else {
    p.product("attention.q", layer, n, a.q_width(), width);
  }
  p.product("attention.kv_down", layer, n, down(a), width);
  p.norm(view(p.type(), {n, a.kv_rank}), a.kv_rank);
  p.product("attention.kv_up", layer, n, up(a), a.kv_rank);
  p.elementwise("attention.k", layer, 2.0 * double(n) * double(a.q_width()));  // both parts of every head's k, together
}

void weight_gradients(Passes& p, const SelfAttention& a, int layer, WeightGradients& g) {
  const std::int64_t n = p.rows(), width = p.d.width;
  (void)p.make("attention.dkv_latent", layer, p.type(), {n, down(a)});
  g.add("attention.kv_up.dw", layer, n, up(a), a.kv_rank);
  p.product_dx("attention.kv_up.dx", layer, n, up(a), a.kv_rank);
  p.norm_backward(a.kv_rank);
  g.add("attention.kv_down.dw", layer, n, down(a), width);
  if (a.q_rank == 0) return g.add("attention.q.dw", layer, n, a.q_width(), width);
  (void)p.make("attention.dq_latent", layer, p.type(), {n, a.q_rank});
  g.add("attention.q_up.dw", layer, n, a.q_width(), a.q_rank);
  p.product_dx("attention.q_up.dx", layer, n, a.q_width(), a.q_rank);
  p.norm_backward(a.q_rank);
  g.add("attention.q_down.dw", layer, n, a.q_rank, width);
}

void into_stream(Passes& p, const SelfAttention& a, int layer) {
  p.product_dx("attention.kv_down.dx", layer, p.rows(), down(a), p.d.width);
  p.product_dx("attention.q_down.dx", layer, p.rows(), a.q_rank > 0 ? a.q_rank : a.q_width(), p.d.width);
}

}  // namespace
}  // namespace latent

const AttentionInputs latent_inputs{[](const SelfAttention& a) { return a.latent(); },
                                    latent::items,
                                    latent::width_of,
                                    latent::forward,
                                    latent::weight_gradients,
                                    latent::into_stream};

}  // namespace headroom::engine::counted
