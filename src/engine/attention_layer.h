// The attention half of a block: out = x + attention(turn(norm(x)·Wqkv))·Wout. Where the model has them: biases, norms of q and k before
// they turn, positions that turn nothing, no norm before, and a norm of what is added to x.
//
// Order of calls: all = complete(make_kept(keep)); forward(x, all, {}, out). For backward the kept tensors are completed anew and
// forward is called again for those that were not kept (`have` says which hold values already); then backward, which uses up `all`.
#pragma once
#include "engine/keep.h"
#include "engine/norm.h"
#include "engine/products.h"
#include "engine/split_tokens.h"
#include "ops/attention/attention.h"
#include "ops/rope/rope.h"

namespace headroom::engine {

struct AttentionSaved {
  Tensor n;         // norm(x) [rows, width], where there is a norm before and it is stored
  NormStats stats;  // of it
  Tensor qkv;       // turned, or before q/k norms [rows, q + 2 kv]
  Tensor o, lse;    // [rows, q], FP32 [batch, heads, len]
  attention::Saved core;
  bool core_valid = false;
  Tensor y;               // input of a norm after the half [rows, width]
  NormStats after_stats;  // of it
  Scaled n_fp8;           // transposed: in fp8 what backward reads of what the product takes, and what is kept instead of n

  bool normed() const { return n || n_fp8; }
};

struct AttentionLayer {
  const Decoder& decoder;
  const SelfAttention& shape;
  const attention::Variant& variant;
  attention::Problem problem;  // for this rank's tokens
  Products::With products;
  Tensor rope_table;  // none: positions do not rotate
  int layer = 0;
  const TokenSplit* split = nullptr;  // set if other ranks have the rest of every sequence
  attention::Extras with = {};        // the documents' borders, if rows are packed
  Tensor positions = {};              // each token's position, if rows are packed

  AttentionSaved make_kept(Keep, Context&) const;
  AttentionSaved complete(AttentionSaved kept, Pass, Context&) const;  // makes the rest in the caller's scope
  void forward(const Tensor& x, const ParamStore::Lease&, const AttentionSaved& all, const AttentionSaved& have, const Tensor& out,
               Context&) const;
  // d: gradient of `out`, and of x when it returns. Weights' gradients go where they belong.
  void backward(const Tensor& x, const ParamStore::Lease&, const AttentionSaved& all, const Tensor& d, Gradient into_dw, Context&) const;

 private:
  std::int64_t rows() const { return problem.batch * problem.len_q; }
  std::int64_t qkv_width() const { return shape.q_width() + shape.k_width() + shape.v_width(); }
  Norm before() const { return {decoder, Role::norm1, Role::norm1_bias, {"norm1.rstd", layer}, {"norm1.mean", layer}, rows()}; }
  Norm after() const { return {decoder, Role::norm1_after, Role::other, {"norm1_after.rstd", layer}, {"norm1_after.mean", layer}, rows()}; }
  struct Heads;
  Heads heads_of(const Tensor& qkv) const;
  Heads norm_heads(const Tensor& qkv, const ParamStore::Lease&, Context&) const;
  void turn(const Heads&, rope::Turn, Context&) const;
  void norm_backward(const Heads& x, const Heads& d, const ParamStore::Lease&, Gradient into_dw, Context&) const;
  attention::Saved make_saved(Context&) const;
};

}  // namespace headroom::engine
