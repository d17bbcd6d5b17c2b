#include "engine/halves/grouped_attention.h"

#include "ops/bias/bias.h"
#include "ops/head_norm/head_norm.h"

namespace headroom::engine {

struct GroupedAttention::Views {
  Heads heads;                 // views of one [rows, q + 2 kv] matrix
  Tensor qk;                   // q's and k's heads together: what turns
  Tensor q_rows, k_rows;       // q and k as rows of all their heads
  Tensor q_rstd, k_rstd = {};  // norms over all heads
};

GroupedAttention::Views GroupedAttention::views_of(const Tensor& qkv) const {
  const auto q = shape.q_width(), k = shape.k_width(), dim = problem.head_dim, heads = problem.heads, kv_heads = problem.kv_heads;
  return {{heads_in(qkv, 0, heads, dim), heads_in(qkv, q, kv_heads, dim),
           qkv.shape[1] > q + k ? heads_in(qkv, q + k, kv_heads, problem.value_dim()) : Tensor()},
          heads_in(qkv, 0, heads + kv_heads, dim),
          matmul::part(qkv, 1, 0, q),
          matmul::part(qkv, 1, q, q + k),
          {}};
}

// With norms of q and k their normed and turned values lie in a matrix of their own, [rows, q + kv]: backward needs them as they were.
GroupedAttention::Views GroupedAttention::norm_heads(const Tensor& qkv, const ParamStore::Lease& w, Context& ctx) const {
  const auto eps = float(decoder.norm_eps);
  const Views raw = views_of(qkv);
  Views turned = views_of(ctx.arena.make({"attention.qk", layer}, qkv.dtype, {qkv.shape[0], shape.q_width() + shape.k_width()}));
  turned.heads.v = raw.heads.v;
  if (shape.norm == HeadNorm::each) {
    head_norm::forward({raw.heads.q, w[WeightRole::q_norm].w, rope_table, turned.heads.q, eps, positions}, ctx);
    head_norm::forward({raw.heads.k, w[WeightRole::k_norm].w, rope_table, turned.heads.k, eps, positions}, ctx);
    return turned;
  }
  turned.q_rstd = ctx.arena.make({"q_norm.rstd", layer}, DType::f32, {rows});
  turned.k_rstd = ctx.arena.make({"k_norm.rstd", layer}, DType::f32, {rows});
  rmsnorm::forward({raw.q_rows, w[WeightRole::q_norm].w, turned.q_rows, turned.q_rstd, eps}, ctx);
  rmsnorm::forward({raw.k_rows, w[WeightRole::k_norm].w, turned.k_rows, turned.k_rstd, eps}, ctx);
  turn(turned.qk, rope::Turn::forward, ctx);
  return turned;
}

// d, in: the gradients that attention made; of norms over all heads already turned back. d, out: the gradients of what the norms took, x.
void GroupedAttention::norm_backward(const Views& x, const Views& d, const ParamStore::Lease& w, Gradient into_dw, Context& ctx) const {
  const auto eps = float(decoder.norm_eps);
  const Weight q = w[WeightRole::q_norm], k = w[WeightRole::k_norm];
  if (shape.norm == HeadNorm::each) {
    head_norm::backward({x.heads.q, q.w, rope_table, d.heads.q, q.dw, into_dw, eps, positions}, ctx);
    head_norm::backward({x.heads.k, k.w, rope_table, d.heads.k, k.dw, into_dw, eps, positions}, ctx);
    return;
  }
  rmsnorm::backward({x.q_rows, q.w, x.q_rstd, d.q_rows, d.q_rows, q.dw, Gradient::overwrite, into_dw}, ctx);
  rmsnorm::backward({x.k_rows, k.w, x.k_rstd, d.k_rows, d.k_rows, k.dw, Gradient::overwrite, into_dw}, ctx);
}

void GroupedAttention::make_kept(Saved& s, Keep keep, Context& ctx) const {
  make_o(s, ctx);
  if (keep == Keep::no_attention_inputs) return;
  s.qkv = ctx.arena.make({"attention.qkv", layer}, stored(), {rows, qkv_width()});
  make_core(s, ctx);
}

void GroupedAttention::complete(Saved& s, Pass, Context& ctx) const {
  make_o(s, ctx);
  if (!s.qkv) s.qkv = ctx.arena.make({"attention.qkv", layer}, stored(), {rows, qkv_width()});
  make_core(s, ctx);
}

void GroupedAttention::first(Products& p, const Read& in, const Saved& all, const Saved&, Context&) const {
  p.forward({"attention.qkv", layer}, in, WeightRole::qkv, all.qkv);
}

void GroupedAttention::middle(Products&, const ParamStore::Lease& w, const Saved& all, const Saved& have, Context& ctx) const {
  const Views x = views_of(all.qkv);
  const bool normed = shape.norm != HeadNorm::none;
  if (!have.qkv) {
    if (shape.qkv_bias) bias::add(all.qkv, w[WeightRole::qkv_bias].w, ctx);
    if (!normed) turn(x.qk, rope::Turn::forward, ctx);
  }
  if (!attends(all, have)) return;
  auto scope = ctx.arena.scope();
  attend(normed ? norm_heads(all.qkv, w, ctx).heads : x.heads, all, ctx);
}

Read GroupedAttention::backward(Products& p, const ParamStore::Lease& w, const Saved& all, const Tensor& dy, Gradient into_dw,
                                Context& ctx) const {
  if (shape.out_bias) bias::backward(dy, w[WeightRole::out_bias].dw, into_dw, ctx);
  const Tensor dqkv = ctx.arena.make({"attention.dqkv", layer}, all.qkv.dtype, all.qkv.shape);
  {
    auto inner = ctx.arena.scope();
    const bool normed = shape.norm != HeadNorm::none, turned = shape.norm != HeadNorm::each && !p.watched() && turns_in_backward();
    const Views d = views_of(dqkv);
    Views x = views_of(all.qkv);
    attend_backward(
        p, all, dy, d.heads,
        [&] {
          if (!normed) return x.heads;
          const Views at = norm_heads(all.qkv, w, ctx);
          x.q_rstd = at.q_rstd;
          x.k_rstd = at.k_rstd;
          return at.heads;
        },
        ctx, turned);
    if (!turned && shape.norm != HeadNorm::each) turn(d.qk, rope::Turn::back, ctx);
    if (normed) norm_backward(x, d, w, into_dw, ctx);
  }
  if (shape.qkv_bias) bias::backward(dqkv, w[WeightRole::qkv_bias].dw, into_dw, ctx);
  return p.read(Quantised::d_qkv, dqkv, Copies::both);
}

}  // namespace headroom::engine
