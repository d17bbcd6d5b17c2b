#include "engine/attention_layer.h"

#include "ops/bias/bias.h"
#include "ops/head_norm/head_norm.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"

namespace headroom::engine {

namespace {

struct Heads {
  Tensor q, k, v;  // views of one [rows, q + 2 kv] matrix
  Tensor qk;       // q's and k's heads together: what is turned
};

Tensor view_of(const Tensor& qkv, const attention::Problem& p, std::int64_t column, std::int64_t heads) {
  Tensor t = matmul::part(qkv, 1, column, column + heads * p.head_dim);
  const auto row = qkv.stride[0];
  t.shape = {p.batch, p.len_q, heads, p.head_dim};
  t.stride = {p.len_q * row, row, p.head_dim, 1};
  return t;
}
Heads heads_of(const Tensor& qkv, const attention::Problem& p) {
  const auto q = p.heads * p.head_dim, kv = p.kv_heads * p.head_dim;
  return {view_of(qkv, p, 0, p.heads), view_of(qkv, p, q, p.kv_heads), view_of(qkv, p, q + kv, p.kv_heads),
          view_of(qkv, p, 0, p.heads + p.kv_heads)};
}
// With norms of q and k their normed and turned values lie in a matrix of their own, [rows, q + kv]: backward needs them as they were.
Heads norm_heads(const AttentionLayer& l, const Tensor& qkv, const ParamStore::Lease& w, Context& ctx) {
  const auto& p = l.problem;
  const Heads raw = heads_of(qkv, p);
  const Tensor qk = ctx.arena.make({"attention.qk", l.layer}, qkv.dtype, {qkv.shape[0], l.config.q_width() + l.config.kv_width()});
  const Heads turned{view_of(qk, p, 0, p.heads), view_of(qk, p, l.config.q_width(), p.kv_heads), raw.v, {}};
  head_norm::forward({raw.q, w[Role::q_norm].w, l.rope_table, turned.q, float(l.config.norm_eps)}, ctx);
  head_norm::forward({raw.k, w[Role::k_norm].w, l.rope_table, turned.k, float(l.config.norm_eps)}, ctx);
  return turned;
}
Tensor as_heads(const Tensor& o, const attention::Problem& p) { return Tensor(o.data, o.dtype, p.q_shape()); }

}  // namespace

attention::Saved AttentionLayer::make_saved(Context& ctx) const {
  return split ? split->make_saved(ctx) : variant.make_saved(problem, ctx);
}

AttentionSaved AttentionLayer::make_kept(Keep keep, Context& ctx) const {
  const DType t = problem.precision.dtype;
  const auto rows = problem.batch * problem.len_q;
  AttentionSaved s;
  if (keep == Keep::input) return s;
  s.rstd = ctx.arena.make({"norm1.rstd", layer}, DType::f32, {rows});
  s.o = ctx.arena.make({"attention.o", layer}, t, {rows, config.q_width()});
  s.lse = ctx.arena.make({"attention.lse", layer}, DType::f32, problem.lse_shape());
  if (keep == Keep::no_attention_inputs) return s;
  s.qkv = ctx.arena.make({"attention.qkv", layer}, t, {rows, config.qkv_width()});
  s.core = make_saved(ctx);
  s.core_valid = true;
  if (keep != Keep::everything && keep != Keep::no_product) return s;
  if (products.formats.quantised())
    s.n_fp8 = Products::make_transposed(products.formats, Quantised::norm1, rows, config.width, layer, ctx);
  else
    s.n = ctx.arena.make({"norm1.y", layer}, t, {rows, config.width});
  return s;
}

AttentionSaved AttentionLayer::complete(AttentionSaved s, Pass pass, Context& ctx) const {
  const DType t = problem.precision.dtype;
  const auto rows = problem.batch * problem.len_q;
  if (!s.rstd) s.rstd = ctx.arena.make({"norm1.rstd", layer}, DType::f32, {rows});
  if (!s.o) s.o = ctx.arena.make({"attention.o", layer}, t, {rows, config.q_width()});
  if (!s.lse) s.lse = ctx.arena.make({"attention.lse", layer}, DType::f32, problem.lse_shape());
  if (!s.qkv) s.qkv = ctx.arena.make({"attention.qkv", layer}, t, {rows, config.qkv_width()});
  if (!s.core_valid) {
    s.core = make_saved(ctx);
    s.core_valid = true;
  }
  if (!s.n) s.n = ctx.arena.make({"norm1.y", layer}, t, {rows, config.width});
  if (products.formats.quantised() && pass == Pass::backward && !s.n_fp8)
    s.n_fp8 = Products::make_transposed(products.formats, Quantised::norm1, rows, config.width, layer, ctx);
  return s;
}

void AttentionLayer::forward(const Tensor& x, const ParamStore::Lease& w, const AttentionSaved& all, const AttentionSaved& have,
                             const Tensor& out, Context& ctx) const {
  const auto here = ctx.inside({"attention", layer});
  Products p(products, layer, w, ctx);
  if (!have.normed()) rmsnorm::forward({x, w[Role::norm1].w, all.n, all.rstd, float(config.norm_eps)}, ctx);
  const Heads h = heads_of(all.qkv, problem);
  {
    auto scope = ctx.arena.scope();
    const Read n = p.read_missing(Quantised::norm1, all.n, !have.qkv, have.n_fp8 ? Scaled() : all.n_fp8);
    if (!have.qkv) p.forward({"attention.qkv", layer}, n, Role::qkv, all.qkv);
  }
  if (!have.qkv) {
    if (config.qkv_bias) bias::add(all.qkv, w[Role::qkv_bias].w, ctx);
    if (!config.qk_norm) rope::rotate(h.qk, rope_table, rope::Turn::forward, ctx);
  }
  if (!have.o || (all.core.p && !have.core_valid)) {
    auto scope = ctx.arena.scope();
    const Heads turned = config.qk_norm ? norm_heads(*this, all.qkv, w, ctx) : h;
    const attention::Forward f{turned.q, turned.k, turned.v, as_heads(all.o, problem), all.lse, all.core};
    split ? split->forward(f, layer, ctx) : attention::forward(variant, problem, f, ctx);
  }
  if (!out) return;
  auto scope = ctx.arena.scope();
  p.forward({"attention.out", layer}, p.read(Quantised::o, all.o, Copies::as_is), Role::out, out, x);
}

void AttentionLayer::backward(const Tensor& x, const ParamStore::Lease& w, const AttentionSaved& all, const Tensor& d, Gradient into_dw,
                              Context& ctx) const {
  const auto here = ctx.inside({"attention", layer});
  auto scope = ctx.arena.scope();
  const Weight norm = w[Role::norm1];
  Products p(products, layer, w, ctx, into_dw);
  const Tensor dqkv = ctx.arena.make({"attention.dqkv", layer}, all.qkv.dtype, all.qkv.shape);
  {
    auto inner = ctx.arena.scope();
    const Tensor d_o = ctx.arena.make({"attention.do", layer}, all.o.dtype, all.o.shape);
    {
      auto copies = ctx.arena.scope();
      const Read dy = p.read(Quantised::d_attention, d, Copies::both);
      p.dw({"attention.out.dw", layer}, dy, p.read(Quantised::o, all.o, Copies::transposed), Role::out);
      p.dx({"attention.out.dx", layer}, dy, Role::out, d_o);
      if (p.quantised()) p.finish();  // what it reads ends here, and its weight has been used for the last time
    }
    const Heads h = heads_of(all.qkv, problem), dh = heads_of(dqkv, problem), at = config.qk_norm ? norm_heads(*this, all.qkv, w, ctx) : h;
    const attention::Backward b{at.q, at.k, at.v,    as_heads(all.o, problem), all.lse, as_heads(d_o, problem), {}, dh.q,
                                dh.k, dh.v, all.core};
    split ? split->backward(b, layer, ctx) : attention::backward(variant, problem, b, ctx);
    if (config.qk_norm) {
      const Weight q = w[Role::q_norm], k = w[Role::k_norm];
      head_norm::backward({h.q, q.w, rope_table, dh.q, q.dw, into_dw, float(config.norm_eps)}, ctx);
      head_norm::backward({h.k, k.w, rope_table, dh.k, k.dw, into_dw, float(config.norm_eps)}, ctx);
    } else {
      rope::rotate(dh.qk, rope_table, rope::Turn::back, ctx);
    }
  }
  if (config.qkv_bias) bias::backward(dqkv, w[Role::qkv_bias].dw, into_dw, ctx);
  const Read dy = p.read(Quantised::d_qkv, dqkv, Copies::both);
  p.dw({"attention.qkv.dw", layer}, dy, {all.n, {}, all.n_fp8}, Role::qkv);
  // Norm(x) has been used for the last time, unless its product waits and reads it: its gradient takes its place.
  const bool n_is_read = p.waiting() && !p.quantised();
  const Tensor dn = n_is_read ? ctx.arena.make({"norm1.dy", layer}, all.n.dtype, all.n.shape) : all.n;
  p.dx({"attention.qkv.dx", layer}, dy, Role::qkv, dn);
  p.finish();
  rmsnorm::backward({x, norm.w, all.rstd, dn, d, norm.dw, Gradient::accumulate, into_dw}, ctx);
}

}  // namespace headroom::engine
