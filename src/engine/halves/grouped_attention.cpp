#include "engine/halves/grouped_attention.h"

#include "ops/bias/bias.h"
#include "ops/head_norm/head_norm.h"

namespace headroom::engine {

struct GroupedAttention::Heads {
  Tensor q, k, v;              // views of one [rows, q + 2 kv] matrix
  Tensor qk;                   // q's and k's heads together: what turns
  Tensor q_rows, k_rows;       // q and k as rows of all their heads
  Tensor q_rstd, k_rstd = {};  // of norms over all heads
};

namespace {

Tensor view_of(const Tensor& qkv, const attention::Problem& p, std::int64_t column, std::int64_t heads) {
  Tensor t = matmul::part(qkv, 1, column, column + heads * p.head_dim);
  const auto row = qkv.stride[0];
  t.shape = {p.batch, p.len_q, heads, p.head_dim};
  t.stride = {p.len_q * row, row, p.head_dim, 1};
  return t;
}
Tensor as_heads(const Tensor& o, const attention::Problem& p) { return Tensor(o.data, o.dtype, p.q_shape()); }

}  // namespace

GroupedAttention::Heads GroupedAttention::heads_of(const Tensor& qkv) const {
  const auto& p = problem;
  const auto q = shape.q_width(), kv = shape.k_width();
  return {view_of(qkv, p, 0, p.heads),
          view_of(qkv, p, q, p.kv_heads),
          qkv.shape[1] > q + kv ? view_of(qkv, p, q + kv, p.kv_heads) : Tensor(),
          view_of(qkv, p, 0, p.heads + p.kv_heads),
          matmul::part(qkv, 1, 0, q),
          matmul::part(qkv, 1, q, q + kv),
          {}};
}

// The first elements of every head of q and k, as many as turn.
void GroupedAttention::turn(const Heads& h, rope::Turn way, Context& ctx) const {
  if (!rope_table) return;
  Tensor turned = h.qk;
  turned.shape.dim[3] = rope_table.shape[1];
  rope::rotate(turned, rope_table, way, ctx, positions);
}

// With norms of q and k their normed and turned values lie in a matrix of their own, [rows, q + kv]: backward needs them as they were.
GroupedAttention::Heads GroupedAttention::norm_heads(const Tensor& qkv, const ParamStore::Lease& w, Context& ctx) const {
  const auto eps = float(decoder.norm_eps);
  const Heads raw = heads_of(qkv);
  Heads turned = heads_of(ctx.arena.make({"attention.qk", layer}, qkv.dtype, {qkv.shape[0], shape.q_width() + shape.k_width()}));
  turned.v = raw.v;
  if (shape.norm == HeadNorm::each) {
    head_norm::forward({raw.q, w[Role::q_norm].w, rope_table, turned.q, eps, positions}, ctx);
    head_norm::forward({raw.k, w[Role::k_norm].w, rope_table, turned.k, eps, positions}, ctx);
    return turned;
  }
  turned.q_rstd = ctx.arena.make({"q_norm.rstd", layer}, DType::f32, {rows});
  turned.k_rstd = ctx.arena.make({"k_norm.rstd", layer}, DType::f32, {rows});
  rmsnorm::forward({raw.q_rows, w[Role::q_norm].w, turned.q_rows, turned.q_rstd, eps}, ctx);
  rmsnorm::forward({raw.k_rows, w[Role::k_norm].w, turned.k_rows, turned.k_rstd, eps}, ctx);
  turn(turned, rope::Turn::forward, ctx);
  return turned;
}

// d: in: the gradients of q and k as attention saw them; out: of what their norms took, x.
void GroupedAttention::norm_backward(const Heads& x, const Heads& d, const ParamStore::Lease& w, Gradient into_dw, Context& ctx) const {
  const auto eps = float(decoder.norm_eps);
  const Weight q = w[Role::q_norm], k = w[Role::k_norm];
  if (shape.norm == HeadNorm::each) {
    head_norm::backward({x.q, q.w, rope_table, d.q, q.dw, into_dw, eps, positions}, ctx);
    head_norm::backward({x.k, k.w, rope_table, d.k, k.dw, into_dw, eps, positions}, ctx);
    return;
  }
  turn(d, rope::Turn::back, ctx);
  rmsnorm::backward({x.q_rows, q.w, x.q_rstd, d.q_rows, d.q_rows, q.dw, Gradient::overwrite, into_dw}, ctx);
  rmsnorm::backward({x.k_rows, k.w, x.k_rstd, d.k_rows, d.k_rows, k.dw, Gradient::overwrite, into_dw}, ctx);
}

attention::Saved GroupedAttention::make_saved(Context& ctx) const {
  return split ? split->make_saved(ctx) : variant.make_saved(problem, ctx);
}

void GroupedAttention::make_kept(Saved& s, Keep keep, Context& ctx) const {
  s.o = ctx.arena.make({"attention.o", layer}, stored(), {rows, shape.q_width()});
  s.lse = ctx.arena.make({"attention.lse", layer}, DType::f32, problem.lse_shape());
  if (keep == Keep::no_attention_inputs) return;
  s.qkv = ctx.arena.make({"attention.qkv", layer}, stored(), {rows, qkv_width()});
  s.core = make_saved(ctx);
  s.core_valid = true;
}

void GroupedAttention::complete(Saved& s, Pass, Context& ctx) const {
  if (!s.o) s.o = ctx.arena.make({"attention.o", layer}, stored(), {rows, shape.q_width()});
  if (!s.lse) s.lse = ctx.arena.make({"attention.lse", layer}, DType::f32, problem.lse_shape());
  if (!s.qkv) s.qkv = ctx.arena.make({"attention.qkv", layer}, stored(), {rows, qkv_width()});
  if (s.core_valid) return;
  s.core = make_saved(ctx);
  s.core_valid = true;
}

void GroupedAttention::first(Products& p, const Read& in, const ParamStore::Lease&, const Saved& all, Context&) const {
  p.forward({"attention.qkv", layer}, in, Role::qkv, all.qkv);
}

void GroupedAttention::middle(const ParamStore::Lease& w, const Saved& all, const Saved& have, Context& ctx) const {
  const Heads h = heads_of(all.qkv);
  const bool normed = shape.norm != HeadNorm::none;
  if (!have.qkv) {
    if (shape.qkv_bias) bias::add(all.qkv, w[Role::qkv_bias].w, ctx);
    if (!normed) turn(h, rope::Turn::forward, ctx);
  }
  if (have.o && !(all.core.p && !have.core_valid)) return;
  auto scope = ctx.arena.scope();
  const Heads turned = normed ? norm_heads(all.qkv, w, ctx) : h;
  const attention::Forward f{turned.q, turned.k, turned.v, as_heads(all.o, problem), all.lse, all.core, with};
  split ? split->forward(f, layer, ctx) : attention::forward(variant, problem, f, ctx);
}

void GroupedAttention::last(Products& p, const ParamStore::Lease& w, const Saved& all, const Tensor& to, const Tensor& add,
                            Context& ctx) const {
  {
    auto scope = ctx.arena.scope();
    p.forward({"attention.out", layer}, p.read(Quantised::o, all.o, Copies::as_is), Role::out, to, add);
  }
  if (shape.out_bias) bias::add(to, w[Role::out_bias].w, ctx);
}

Read GroupedAttention::backward(Products& p, const ParamStore::Lease& w, const Saved& all, const Tensor& dy, Gradient into_dw,
                                Context& ctx) const {
  if (shape.out_bias) bias::backward(dy, w[Role::out_bias].dw, into_dw, ctx);
  const Tensor dqkv = ctx.arena.make({"attention.dqkv", layer}, all.qkv.dtype, all.qkv.shape);
  {
    auto inner = ctx.arena.scope();
    const Tensor d_o = ctx.arena.make({"attention.do", layer}, all.o.dtype, all.o.shape);
    {
      auto copies = ctx.arena.scope();
      const Read read = p.read(Quantised::d_attention, dy, Copies::both);
      p.dw({"attention.out.dw", layer}, read, p.read(Quantised::o, all.o, Copies::transposed), Role::out);
      p.dx({"attention.out.dx", layer}, read, Role::out, d_o);
      if (p.quantised()) p.finish();  // what it reads ends here, and its weight has been used for the last time
    }
    const bool normed = shape.norm != HeadNorm::none;
    const Heads h = heads_of(all.qkv), dh = heads_of(dqkv), at = normed ? norm_heads(all.qkv, w, ctx) : h;
    const attention::Backward b{at.q, at.k,     at.v, as_heads(all.o, problem), all.lse, as_heads(d_o, problem), {}, dh.q, dh.k,
                                dh.v, all.core, with};
    split ? split->backward(b, layer, ctx) : attention::backward(variant, problem, b, ctx);
    if (normed) {
      Heads before_norms = h;
      before_norms.q_rstd = at.q_rstd;
      before_norms.k_rstd = at.k_rstd;
      norm_backward(before_norms, dh, w, into_dw, ctx);
    } else {
      turn(dh, rope::Turn::back, ctx);
    }
  }
  if (shape.qkv_bias) bias::backward(dqkv, w[Role::qkv_bias].dw, into_dw, ctx);
  return p.read(Quantised::d_qkv, dqkv, Copies::both);
}

}  // namespace headroom::engine
