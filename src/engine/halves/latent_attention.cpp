#include "engine/halves/latent_attention.h"

#include "base/element.h"
#include "ops/bias/bias.h"
#include "ops/copy/copy.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace headroom::engine {

template <class Wanted>
void LatentAttention::make_missing(Saved& s, const Wanted& wanted, Context& ctx) const {
  const auto make = [&](Tensor& t, const char* name, std::int64_t width, Keep last) {
    if (!t && wanted(last)) t = ctx.arena.make({name, layer}, stored(), {rows, width});
  };
  const auto make_rstd = [&](Tensor& t, const char* name) {
    if (!t && wanted(Keep::no_cheap)) t = ctx.arena.make({name, layer}, DType::f32, {rows});
  };
  if (q_latent()) {
    make(s.q_latent, "attention.q_latent", shape.q_rank, Keep::no_cheap);
    make(s.q_normed, "attention.q_latent_norm", shape.q_rank, Keep::no_product);
    make_rstd(s.q_rstd, "attention.q_latent_norm.rstd");
  }
  make(s.kv_latent, "attention.kv_latent", shape.kv_rank + shape.rope_dim, Keep::no_cheap);
  make(s.kv_normed, "attention.kv_latent_norm", shape.kv_rank, Keep::no_product);
  make_rstd(s.kv_rstd, "attention.kv_latent_norm.rstd");
  make(s.q, "attention.q", shape.q_width(), Keep::no_cheap);
  if (absorbed) return;
  make(s.k, "attention.k", shape.q_width(), Keep::no_cheap);
  make(s.v, "attention.v", shape.out_width(), Keep::no_cheap);
}

void LatentAttention::make_kept(Saved& s, Keep keep, Context& ctx) const {
  make_o(s, ctx);
  make_missing(
      s, [&](Keep last) { return keep <= last; }, ctx);
  if (keep != Keep::no_attention_inputs) make_core(s, ctx);
}

void LatentAttention::complete(Saved& s, Pass, Context& ctx) const {
  make_o(s, ctx);
  make_missing(
      s, [](Keep) { return true; }, ctx);
  make_core(s, ctx);
}

LatentAttention::Heads LatentAttention::heads_of(const Tensor& q, const Tensor& k, const Tensor& v) const {
  return {heads_in(q, 0, shape.heads, shape.head_dim), heads_in(k, 0, shape.heads, shape.head_dim),
          heads_in(v, 0, shape.heads, shape.value_dim)};
}

// A part of every head of q, and the one part of K.
void LatentAttention::turn_heads(const Tensor& q, rope::Turn way, Context& ctx) const {
  turn(Tensor(q.data, q.dtype, {problem.batch, problem.len_q, shape.heads + 1, shape.rope_dim}), way, ctx);
}

void LatentAttention::first(Products& p, const Read& in, const Saved& all, const Saved&, Context&) const {
  q_latent() ? p.forward({"attention.q_down", layer}, in, WeightRole::q_down, all.q_latent)
             : p.forward({"attention.q", layer}, in, WeightRole::q_up, all.q);
  p.forward({"attention.kv_down", layer}, in, WeightRole::kv_down, all.kv_latent);
}

void LatentAttention::middle(Products& p, const ParamStore::Lease& w, const Saved& all, const Saved& have, Context& ctx) const {
  const auto norm = [&](const Tensor& x, WeightRole weight, const Tensor& y, const Tensor& rstd) {
    const Tensor of = matmul::part(x, 1, 0, y.shape[1]);
    rmsnorm::forward({of, w[weight].w, y, rstd, float(decoder.norm_eps)}, ctx);
  };
  if (q_latent() && !have.q_normed) norm(all.q_latent, WeightRole::q_latent_norm, all.q_normed, all.q_rstd);
  if (!have.kv_normed) norm(all.kv_latent, WeightRole::kv_latent_norm, all.kv_normed, all.kv_rstd);
  if (!have.q) {
    if (q_latent()) p.forward({"attention.q_up", layer}, {all.q_normed}, WeightRole::q_up, all.q);
    if (!absorbed) {
      p.forward({"attention.kv_up", layer}, {all.kv_normed}, WeightRole::kv_up, Tensor(all.k.data, stored(), {rows, up_width()}));
      copy::join_heads(all.k, ctx, {"attention.k", layer});
    }
    turn_heads(all.q, rope::Turn::forward, ctx);
  }
  if (!attends(all, have)) return;
  auto scope = ctx.arena.scope();
  if (absorbed) return attend_absorbed(p, all, ctx);
  attend(heads_of(all.q, all.k, all.v), all, ctx);
}

// q goes through the rows of K's product up, what attention makes of latents through those of V's: no head's key or value is written.
void LatentAttention::attend_absorbed(Products& p, const Saved& all, Context& ctx) const {
  const std::int64_t rank = shape.kv_rank, of_key = shape.head_dim - shape.rope_dim, each = of_key + shape.value_dim;
  const auto heads_of_rows = [&](const Tensor& t, std::int64_t width) {  // [heads, rows, the first `width` of each head]
    const std::int64_t row = t.shape[1];
    Tensor view(t.data, t.dtype, {shape.heads, rows, width});
    view.stride = {row / shape.heads, row, 1};
    return view;
  };
  const Tensor q = ctx.arena.make({"attention.q_absorbed", layer}, stored(), {rows, shape.heads * (rank + shape.rope_dim)});
  AttentionSaved of_latents = all;
  of_latents.o = ctx.arena.make({"attention.o_latent", layer}, stored(), {rows, shape.heads * rank});
  p.each_head({"attention.k_absorb", layer}, Multiplied::dx, heads_of_rows(all.q, of_key), WeightRole::kv_up, {0, of_key},
              heads_of_rows(q, rank));
  attend({Tensor(q.data, stored(), problem.q_shape()), {}, {}}, of_latents, ctx);
  p.each_head({"attention.v_absorb", layer}, Multiplied::forward, heads_of_rows(of_latents.o, rank), WeightRole::kv_up, {of_key, each},
              heads_of_rows(all.o, shape.value_dim));
}

LatentAttention::Gradients LatentAttention::backward(Products& p, const ParamStore::Lease& w, const Saved& all, const Tensor& dy,
                                                     Gradient into_dw, Context& ctx) const {
  if (shape.out_bias) bias::backward(dy, w[WeightRole::out_bias].dw, into_dw, ctx);
  const std::int64_t q = shape.q_width();
  const Tensor d = ctx.arena.make({"attention.dqkv", layer}, stored(), {rows, 2 * q + shape.out_width()});
  const auto columns = [&](std::int64_t from, std::int64_t width) {  // one behind another, each contiguous
    return Tensor(element_of(d, from * rows), stored(), {rows, width});
  };
  const Tensor dq = columns(0, q);
  {
    auto inner = ctx.arena.scope();
    const Heads parts = heads_of(dq, columns(q, q), columns(2 * q, shape.out_width()));
    attend_backward(
        p, all, dy, parts, [&] { return heads_of(all.q, all.k, all.v); }, ctx);
    turn_heads(d, rope::Turn::back, ctx);
  }
  // Back through a product up and its norm. The gradient takes the place of what the product read, unless the product waits for the update.
  struct Latent {
    const Tensor &x, &normed, &rstd;
    WeightRole weight;
  };
  const auto down = [&](Name dw, Name dx, const Tensor& dup, WeightRole up, const Latent& latent, const Tensor& to) {
    const Tensor& normed = latent.normed;
    p.dw(dw, {dup}, {normed}, up);
    const Tensor dnormed = p.waiting() ? ctx.arena.make({"attention.dlatent_norm", layer}, stored(), normed.shape) : normed;
    p.dx(dx, {dup}, up, dnormed);
    const Tensor x = matmul::part(latent.x, 1, 0, normed.shape[1]), into = matmul::part(to, 1, 0, normed.shape[1]);
    const Weight scale = w[latent.weight];
    rmsnorm::backward({x, scale.w, latent.rstd, dnormed, into, scale.dw, Gradient::overwrite, into_dw}, ctx);
  };
  Gradients to{dq, ctx.arena.make({"attention.dkv_latent", layer}, stored(), all.kv_latent.shape)};
  down({"attention.kv_up.dw", layer}, {"attention.kv_up.dx", layer}, columns(q, up_width()), WeightRole::kv_up,
       {all.kv_latent, all.kv_normed, all.kv_rstd, WeightRole::kv_latent_norm}, to.kv);
  if (!q_latent()) return to;
  to.q = ctx.arena.make({"attention.dq_latent", layer}, stored(), all.q_latent.shape);
  down({"attention.q_up.dw", layer}, {"attention.q_up.dx", layer}, dq, WeightRole::q_up,
       {all.q_latent, all.q_normed, all.q_rstd, WeightRole::q_latent_norm}, to.q);
  return to;
}

void LatentAttention::first_dw(Products& p, const Gradients& d, const Read& n) const {
  p.dw({"attention.kv_down.dw", layer}, {d.kv}, n, WeightRole::kv_down);
  q_latent() ? p.dw({"attention.q_down.dw", layer}, {d.q}, n, WeightRole::q_down)
             : p.dw({"attention.q.dw", layer}, {d.q}, n, WeightRole::q_up);
}

void LatentAttention::first_dx(Products& p, const Gradients& d, const Tensor& to, Gradient into, Context&) const {
  p.dx({"attention.kv_down.dx", layer}, {d.kv}, WeightRole::kv_down, to, into);
  p.dx({q_latent() ? "attention.q_down.dx" : "attention.q.dx", layer}, {d.q}, q_latent() ? WeightRole::q_down : WeightRole::q_up, to,
       Gradient::accumulate);
}

}  // namespace headroom::engine
