// Attention, the core of a block's first half: attention(turn(n·Wqkv))·Wout. Where the model has them: biases, norms of q and k before
// they turn, positions that turn nothing. Keys' heads each serve a group of queries' heads.
#pragma once
#include "engine/halves/half.h"
#include "engine/split_tokens.h"
#include "ops/attention/attention.h"
#include "ops/rope/rope.h"

namespace headroom::engine {

struct GroupedAttention : InBlock {
  struct Saved : HalfSaved {
    Tensor qkv;     // turned, or before q/k norms [rows, q + 2 kv]
    Tensor o, lse;  // [rows, q], FP32 [batch, heads, len]
    attention::Saved core;
    bool core_valid = false;
  };
  static constexpr HalfWords words{.module = "attention",
                                   .norm = Role::norm1,
                                   .norm_bias = Role::norm1_bias,
                                   .norm_after = Role::norm1_after,
                                   .first = Role::qkv,
                                   .reads = Quantised::norm1,
                                   .rstd = "norm1.rstd",
                                   .mean = "norm1.mean",
                                   .n = "norm1.y",
                                   .dn = "norm1.dy",
                                   .after_rstd = "norm1_after.rstd",
                                   .after_mean = "norm1_after.mean",
                                   .y = "attention.out",
                                   .dy = "attention.dout",
                                   .after = "attention.normed",
                                   .first_dw = "attention.qkv.dw",
                                   .first_dx = "attention.qkv.dx"};

  const SelfAttention& shape;
  const attention::Variant& variant;
  attention::Problem problem;         // for this rank's tokens
  Tensor rope_table;                  // none: positions do not rotate
  const TokenSplit* split = nullptr;  // set if other ranks have the rest of every sequence
  attention::Extras with = {};        // the documents' borders, if rows are packed
  Tensor positions = {};              // each token's position, if rows are packed

  void make_kept(Saved&, Keep, Context&) const;
  void complete(Saved&, Pass, Context&) const;
  bool multiplies(const Saved& have) const { return !have.qkv; }
  void first(Products&, const Read& in, const ParamStore::Lease&, const Saved& all, Context&) const;
  void middle(const ParamStore::Lease&, const Saved& all, const Saved& have, Context&) const;
  void last(Products&, const ParamStore::Lease&, const Saved& all, const Tensor& to, const Tensor& add, Context&) const;
  Read backward(Products&, const ParamStore::Lease&, const Saved& all, const Tensor& dy, Gradient into_dw, Context&) const;

 private:
  std::int64_t qkv_width() const { return shape.q_width() + shape.k_width() + shape.v_width(); }
  struct Heads;
  Heads heads_of(const Tensor& qkv) const;
  Heads norm_heads(const Tensor& qkv, const ParamStore::Lease&, Context&) const;
  void turn(const Heads&, rope::Turn, Context&) const;
  void norm_backward(const Heads& x, const Heads& d, const ParamStore::Lease&, Gradient into_dw, Context&) const;
  attention::Saved make_saved(Context&) const;
};

}  // namespace headroom::engine
