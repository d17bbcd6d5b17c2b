// The feed-forward half of a layer, whatever it is made of.
#include <algorithm>

#include "engine/counted/passes.h"
#include "ops/swiglu/swiglu.h"

namespace headroom::engine::counted {

namespace {

constexpr const FeedForwardKind* ffn_kinds[] = {&dense_layer, &routed_experts};

const FeedForwardKind& kind_of(const FeedForward& f) {
  return **std::find_if(std::begin(ffn_kinds), std::end(ffn_kinds), [&](const FeedForwardKind* k) { return k->serves(f); });
}

}  // namespace

void activate(Passes& p, const FeedForward& f, std::int64_t n, std::int64_t width) {
  const Tensor in = view(p.type(), {n, f.in_width(width)}), act = view(p.type(), {n, width});
  if (f.swiglu()) return swiglu::forward({in, act}, p.ctx);
  activation::forward({in, act, f.function}, p.ctx);
}

void activation_gradient(Passes& p, const FeedForward& f, ActivationNames names, int layer, std::int64_t n, std::int64_t width,
                         bool act_kept, std::int64_t weights) {
  auto scope = p.ctx.arena.scope();
  if (act_kept) (void)p.make(names.dact, layer, p.type(), {n, width});
  p.product_dx(names.down_dx, layer, n, p.d.width, width, weights);
  const Tensor in = view(p.type(), {n, f.in_width(width)}), act = view(p.type(), {n, width});
  if (f.swiglu()) return swiglu::backward({in, act, in, act_kept ? Tensor() : act}, p.ctx);
  activation::backward({in, act, in, act_kept ? Tensor() : act, f.function}, p.ctx);
}

std::vector<Item> ffn_items(const Passes& p, const FeedForward& f) {
  const Decoder& d = p.d;
  const DType t = p.type();
  const std::int64_t n = p.rows();
  std::vector<Item> items;
  if (d.ffn_norm()) items.push_back({"norm2.rstd", DType::f32, {n}, Keep::no_attention_inputs});
  if (d.ffn_norm() && d.layer_norm) items.push_back({"norm2.mean", DType::f32, {n}, Keep::no_attention_inputs});
  kind_of(f).items(p, f, items);
  if (d.ffn_norm()) items.push_back({"norm2.y", t, {n, d.width}, Keep::no_product});
  if (d.norms_after) {
    items.push_back({"ffn.out", t, {n, d.width}, Keep::no_cheap});
    items.push_back({"norm2_after.rstd", DType::f32, {n}, Keep::no_attention_inputs});
  }
  return items;
}

void ffn_forward(Passes& p, const FeedForward& f, int layer, Half half) {
  const auto here = p.ctx.inside({"feed-forward", layer});
  const Decoder& d = p.d;
  if (d.ffn_norm() && half.lacks(Keep::no_product)) p.stream_norm();
  kind_of(f).forward(p, f, layer, half);
  if (d.norms_after && half.out) p.norm_after();
  if (d.norms_after && !half.out && half.lacks(Keep::no_attention_inputs)) {
    auto scope = p.ctx.arena.scope();
    p.norm(p.make("ffn.normed", layer, p.type(), {p.rows(), d.width}), d.width);
  }
}

void ffn_backward(Passes& p, const FeedForward& f, int layer, Keep keep, WeightGradients& g) {
  const auto here = p.ctx.inside({"feed-forward", layer});
  auto whole = p.ctx.arena.scope();
  const Decoder& d = p.d;
  if (d.norms_after) {
    (void)p.make("ffn.dout", layer, p.type(), {p.rows(), d.width});
    p.norm_backward(d.width, Gradient::overwrite);
  }
  kind_of(f).backward(p, f, layer, keep == Keep::everything, g);
  g.finish(p.rows());
  if (d.ffn_norm()) p.stream_norm_backward();
}

}  // namespace headroom::engine::counted
