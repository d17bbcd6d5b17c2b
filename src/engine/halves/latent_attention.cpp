#include "engine/halves/latent_attention.h"

#include "ops/bias/bias.h"
#include "ops/copy/copy.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace headroom::engine {

template <class Wanted>
void LatentAttention::make_missing(Saved& s, const Wanted& wanted, Context& ctx) const {
  const auto make = [&](Tensor& t, const char* name, std::int64_t width, Keep last) {
    if (!t && wanted(last)) t = ctx.arena.make({name, layer}, stored(), {rows, width});
  };
  if (q_latent()) {
    make(s.q_latent, "attention.q_latent", shape.q_rank, Keep::no_cheap);
    make(s.q_normed, "attention.q_latent_norm", shape.q_rank, Keep::no_product);
  }
  make(s.kv_latent, "attention.kv_latent", shape.kv_rank + shape.rope_dim, Keep::no_cheap);
  make(s.kv_normed, "attention.kv_latent_norm", shape.kv_rank, Keep::no_product);
  make(s.q, "attention.q", shape.q_width(), Keep::no_cheap);
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
  q_latent() ? p.forward({"attention.q_down", layer}, in, Role::q_down, all.q_latent)
             : p.forward({"attention.q", layer}, in, Role::q_up, all.q);
  p.forward({"attention.kv_down", layer}, in, Role::kv_down, all.kv_latent);
}

void LatentAttention::middle(Products& p, const ParamStore::Lease& w, const Saved& all, const Saved& have, Context& ctx) const {
  const auto norm = [&](const Tensor& x, Role weight, const Tensor& y) {
    const Tensor of = matmul::part(x, 1, 0, y.shape[1]);
    rmsnorm::forward({of, w[weight].w, y, Tensor(nullptr, DType::f32, {rows}), float(decoder.norm_eps)}, ctx);
  };
  if (q_latent() && !have.q_normed) norm(all.q_latent, Role::q_latent_norm, all.q_normed);
  if (!have.kv_normed) norm(all.kv_latent, Role::kv_latent_norm, all.kv_normed);
  if (!have.q) {
    if (q_latent()) p.forward({"attention.q_up", layer}, {all.q_normed}, Role::q_up, all.q);
    p.forward({"attention.kv_up", layer}, {all.kv_normed}, Role::kv_up, Tensor(all.k.data, stored(), {rows, up_width()}));
    copy::join_heads(all.k, ctx, {"attention.k", layer});
    turn_heads(all.q, rope::Turn::forward, ctx);
  }
  if (!attends(all, have)) return;
  auto scope = ctx.arena.scope();
  attend(heads_of(all.q, all.k, all.v), all, ctx);
}

LatentAttention::Gradients LatentAttention::backward(Products& p, const ParamStore::Lease& w, const Saved& all, const Tensor& dy,
                                                     Gradient into_dw, Context& ctx) const {
  if (shape.out_bias) bias::backward(dy, w[Role::out_bias].dw, into_dw, ctx);
  const std::int64_t q = shape.q_width();
  const Tensor d = ctx.arena.make({"attention.dqkv", layer}, stored(), {rows, 2 * q + shape.out_width()});
  const Tensor dq = matmul::part(d, 1, 0, q);
  {
    auto inner = ctx.arena.scope();
    const Heads parts = heads_of(dq, matmul::part(d, 1, q, 2 * q), matmul::part(d, 1, 2 * q, d.shape[1]));
    attend_backward(
        p, all, dy, parts, [&] { return heads_of(all.q, all.k, all.v); }, ctx);
    turn_heads(d, rope::Turn::back, ctx);
  }
  // Back through a product up and its norm. The gradient takes the place of what the product read, unless the product waits for the update.
  const auto down = [&](Name dw, Name dx, const Tensor& dup, Role up, const Tensor& normed, Role weight, const Tensor& x,
                        const Tensor& to) {
    p.dw(dw, {dup}, {normed}, up);
    const Tensor dnormed = p.waiting() ? ctx.arena.make({"attention.dlatent_norm", layer}, stored(), normed.shape) : normed;
    p.dx(dx, {dup}, up, dnormed);
    const Tensor of = matmul::part(x, 1, 0, normed.shape[1]), into = matmul::part(to, 1, 0, normed.shape[1]);
    const Weight scale = w[weight];
    rmsnorm::backward({of, scale.w, Tensor(nullptr, DType::f32, {rows}), dnormed, into, scale.dw, Gradient::overwrite, into_dw}, ctx);
  };
  Gradients to{dq, ctx.arena.make({"attention.dkv_latent", layer}, stored(), all.kv_latent.shape)};
  down({"attention.kv_up.dw", layer}, {"attention.kv_up.dx", layer}, Tensor(d.data, stored(), {rows, up_width()}), Role::kv_up,
       all.kv_normed, Role::kv_latent_norm, all.kv_latent, to.kv);
  if (!q_latent()) return to;
  to.q = ctx.arena.make({"attention.dq_latent", layer}, stored(), all.q_latent.shape);
  down({"attention.q_up.dw", layer}, {"attention.q_up.dx", layer}, dq, Role::q_up, all.q_normed, Role::q_latent_norm, all.q_latent, to.q);
  return to;
}

void LatentAttention::first_dw(Products& p, const Gradients& d, const Read& n) const {
  p.dw({"attention.kv_down.dw", layer}, {d.kv}, n, Role::kv_down);
  q_latent() ? p.dw({"attention.q_down.dw", layer}, {d.q}, n, Role::q_down) : p.dw({"attention.q.dw", layer}, {d.q}, n, Role::q_up);
}

void LatentAttention::first_dx(Products& p, const Gradients& d, const Tensor& to, Gradient into, Context&) const {
  p.dx({"attention.kv_down.dx", layer}, {d.kv}, Role::kv_down, to, into);
  p.dx({q_latent() ? "attention.q_down.dx" : "attention.q.dx", layer}, {d.q}, q_latent() ? Role::q_down : Role::q_up, to,
       Gradient::accumulate);
}

}  // namespace headroom::engine
