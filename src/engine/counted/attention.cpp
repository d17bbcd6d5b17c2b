// Attention's half of a layer, whatever its inputs are made of.
#include <algorithm>

#include "engine/counted/passes.h"
#include "ops/attention/choose_dry.h"
#include "ops/head_norm/head_norm.h"
#include "ops/rope/rope.h"

namespace headroom::engine::counted {

namespace {

constexpr const AttentionInputs* attention_kinds[] = {&latent_inputs, &grouped_inputs};

const AttentionInputs& inputs_of(const SelfAttention& a) {
  return **std::find_if(std::begin(attention_kinds), std::end(attention_kinds), [&](const AttentionInputs* k) { return k->serves(a); });
}

void rotate(Passes& p, const SelfAttention& a, rope::Turn way) {
  if (p.d.positions > 0) return;
  const std::int64_t heads = a.latent() ? a.heads + 1 : a.heads + a.kv_heads, dim = a.turned_dim();
  if (dim >= 2 && dim % 2 == 0 && dim <= 256)
    rope::rotate(view(p.type(), {p.batch, p.len, heads, dim}), view(DType::f32, {p.len, dim}), way, p.ctx);
}

void turn(Passes& p, const SelfAttention& a, rope::Turn way) {
  if (a.norm == HeadNorm::none) rotate(p, a, way);
}

void norm_over_all_heads(Passes& p, const SelfAttention& a, bool back) {
  if (!back)
    for (const char* name : {"q_norm.rstd", "k_norm.rstd"}) (void)p.ctx.arena.make(name, DType::f32, {p.rows()});
  if (back) rotate(p, a, rope::Turn::back);
  for (const std::int64_t width : {a.q_width(), a.k_width()})
    back ? p.norm_backward(width, Gradient::overwrite) : p.norm(view(p.type(), {p.rows(), width}), width);
  if (!back) rotate(p, a, rope::Turn::forward);
}

void head_norms(Passes& p, const SelfAttention& a, bool back) {
  if (a.norm == HeadNorm::none) return;
  if (!back) (void)p.ctx.arena.make("attention.qk", p.type(), {p.rows(), a.q_width() + a.k_width()});
  if (a.norm == HeadNorm::whole) return norm_over_all_heads(p, a, back);
  for (const std::int64_t heads : {a.heads, a.kv_heads}) {
    const Tensor x = view(p.type(), {p.batch, p.len, heads, a.head_dim}), weight = view(DType::f32, {a.head_dim}),
                 table = view(DType::f32, {p.len, a.head_dim});
    if (a.head_dim % 2 != 0 || a.head_dim > 256)
      p.elementwise("attention.norm", -1, (back ? 4.0 : 2.0) * double(x.count()), 8.0 * double(x.count()));
    else if (back)
      head_norm::backward({x, weight, table, x, weight, Gradient::overwrite, 1e-6f}, p.ctx);
    else
      head_norm::forward({x, weight, table, x, 1e-6f}, p.ctx);
  }
}

bool is_plain(const Passes& p, const SelfAttention& a) {
  return attention::choose_dry(p.problem(a), p.ctx.device, p.wanted).family == "plain";
}

void attention_core(Passes& passes, const SelfAttention& a, bool back) {
  Context& ctx = passes.ctx;
  const DType type = passes.type();
  attention::Problem p = passes.problem(a);
  const attention::Variant& v = attention::choose_dry(p, ctx.device, passes.wanted);
  if (!v.supports(p, ctx.device, attention::Pass::forward) && ctx.device.kind == DeviceKind::cuda) p.precision.math = Math::exact;
  const Tensor q = view(type, p.q_shape()), k = view(type, p.k_shape()), v_ = view(type, p.v_shape()), o = view(type, p.o_shape()),
               lse = view(DType::f32, p.lse_shape());
  attention::Saved saved;
  if (v.family == "plain") saved.p = view(type, {p.batch, p.heads, p.len_q, p.len_k});
  if (back) {
    attention::Backward b;
    b.q = b.dq = q, b.k = b.dk = k, b.v = b.dv = v_, b.o = b.d_o = o, b.lse = lse, b.saved = saved;
    attention::backward(v, p, b, ctx);
  } else {
    attention::Forward f;
    f.q = q, f.k = k, f.v = v_, f.o = o, f.lse = lse, f.saved = saved;
    attention::forward(v, p, f, ctx);
    if (passes.bytes_of_cached > 0 && ctx.walk) {
      double& bytes = ctx.walk->steps.back().cost.bytes;
      const double share = passes.bytes_of_cached / passes.size();
      bytes = std::max(bytes * share, bytes - (1 - share) * double(k.bytes() + v_.bytes()));  // a window reads less than all
    }
  }
}

}  // namespace

std::vector<Item> attention_items(const Passes& p, const SelfAttention& a) {
  const Decoder& d = p.d;
  const DType t = p.type();
  const std::int64_t n = p.rows();
  std::vector<Item> items;
  if (d.norms_before) items.push_back({"norm1.rstd", DType::f32, {n}, Keep::no_attention_inputs});
  if (d.norms_before && d.layer_norm) items.push_back({"norm1.mean", DType::f32, {n}, Keep::no_attention_inputs});
  items.push_back({"attention.o", t, {n, a.out_width()}, Keep::no_attention_inputs});
  items.push_back({"attention.lse", DType::f32, p.problem(a).lse_shape(), Keep::no_attention_inputs});
  inputs_of(a).items(p, a, items);
  if (is_plain(p, a)) items.push_back({"p", t, {p.batch, a.heads, p.len, p.len_k}, Keep::no_cheap});
  if (d.norms_before) items.push_back({"norm1.y", t, {n, d.width}, Keep::no_product});
  if (d.norms_after) {
    items.push_back({"attention.out", t, {n, d.width}, Keep::no_cheap});
    items.push_back({"norm1_after.rstd", DType::f32, {n}, Keep::no_attention_inputs});
  }
  return items;
}

void attention_forward(Passes& p, const SelfAttention& a, int layer, Half half) {
  const auto here = p.ctx.inside({"attention", layer});
  const Decoder& d = p.d;
  if (d.norms_before && half.lacks(Keep::no_product)) p.stream_norm();
  if (half.lacks(Keep::no_cheap)) {
    inputs_of(a).forward(p, a, layer);
    turn(p, a, rope::Turn::forward);
  }
  if (half.lacks(Keep::no_attention_inputs) || (half.lacks(Keep::no_cheap) && is_plain(p, a))) {
    auto scope = p.ctx.arena.scope();
    head_norms(p, a, false);
    attention_core(p, a, false);
  }
  if (d.norms_after ? half.lacks(Keep::no_cheap) : half.out) {
    p.product("attention.out", layer, p.rows(), d.width, a.out_width(), 1, d.norms_after ? 0.0f : 1.0f);
    if (a.out_bias) p.add_bias(d.width);
  }
  if (d.norms_after && half.out) p.norm_after();
}

void attention_backward(Passes& p, const SelfAttention& a, int layer, WeightGradients& g) {
  const auto here = p.ctx.inside({"attention", layer});
  auto scope = p.ctx.arena.scope();
  const Decoder& d = p.d;
  const AttentionInputs& inputs = inputs_of(a);
  const std::int64_t n = p.rows();
  if (d.norms_after) {
    (void)p.make("attention.dout", layer, p.type(), {n, d.width});
    p.norm_backward(d.width, Gradient::overwrite);
  }
  if (a.out_bias) p.bias_gradient(d.width);
  g.add("attention.out.dw", layer, n, d.width, a.out_width());
  (void)p.make("attention.dqkv", layer, p.type(), {n, inputs.gradient_width(a)});
  {
    auto inner = p.ctx.arena.scope();
    (void)p.make("attention.do", layer, p.type(), {n, a.out_width()});
    p.product_dx("attention.out.dx", layer, n, d.width, a.out_width());
    head_norms(p, a, false);
    attention_core(p, a, true);
    head_norms(p, a, true);
    turn(p, a, rope::Turn::back);
  }
  inputs.weight_gradients(p, a, layer, g);
  // Norm(x) has been used for the last time, unless its product waits: its gradient takes its place. Without a norm it is the stream's.
  if (g.none() && d.norms_before) (void)p.make("norm1.dy", layer, p.type(), {n, d.width});
  inputs.into_stream(p, a, layer);
  g.finish(n);
  if (d.norms_before) p.stream_norm_backward();
}

}  // namespace headroom::engine::counted
