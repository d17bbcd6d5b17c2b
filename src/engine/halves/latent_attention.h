// Attention by way of latents, DeepSeek's: q, and k with v, each by a product down to a few numbers a token, a norm, and a product up to all
// heads. One turned part of K serves all heads. Where q has no latent it is one product of n. Counted, not computed: K's parts and V have no
// op that brings them to their places. A model that answers may absorb the products up instead: scores are of latents, and so are values.
#pragma once
#include "engine/halves/attending.h"

namespace headroom::engine {

struct LatentAttention : Attending {
  struct Saved : AttentionSaved {
    Tensor q_latent, q_normed;    // [rows, q_rank]; none where q has no latent
    Tensor kv_latent, kv_normed;  // [rows, kv_rank + rope_dim], [rows, kv_rank]
    Tensor q_rstd, kv_rstd;       // FP32 [rows], from the latents' norms
    Tensor q, k, v;               // all heads, rotary positions applied
  };
  struct Gradients {
    Tensor q, kv;  // dx of q's latent (or of q), and of the latent of k and v
  };

  void make_kept(Saved&, Keep, Context&) const;
  void complete(Saved&, Pass, Context&) const;
  bool multiplies(const Saved& have) const { return !have.q; }
  void first(Products&, const Read& in, const Saved& all, const Saved& have, Context&) const;
  void middle(Products&, const ParamStore::Lease&, const Saved& all, const Saved& have, Context&) const;
  Gradients backward(Products&, const ParamStore::Lease&, const Saved& all, const Tensor& dy, Gradient into_dw, Context&) const;
  void first_dw(Products&, const Gradients&, const Read& n) const;
  void first_dx(Products&, const Gradients&, const Tensor& to, Gradient into, Context&) const;

 private:
  bool q_latent() const { return shape.q_rank > 0; }
  std::int64_t up_width() const { return shape.heads * (shape.head_dim - shape.rope_dim + shape.value_dim); }
  template <class Wanted>
  void make_missing(Saved&, const Wanted&, Context&) const;
  Heads heads_of(const Tensor& q, const Tensor& k, const Tensor& v) const;
  void turn_heads(const Tensor& q, rope::Turn, Context&) const;
  void attend_absorbed(Products&, const Saved& all, Context&) const;
};

}  // namespace headroom::engine
