// The attention half of a block: out = x + attention(rope(norm(x)·Wqkv))·Wout; with q/k norms, each head of q and k is normalised before
// its rotation.
//
// Order of calls: all = complete(make_kept(keep)); forward(x, all, {}, out). For backward the kept tensors are completed anew and
// forward is called again for those that were not kept (`have` says which hold values already); then backward, which uses up `all`.
#pragma once
#include "engine/config.h"
#include "engine/keep.h"
#include "engine/products.h"
#include "engine/split_tokens.h"
#include "ops/attention/attention.h"

namespace headroom::engine {

struct AttentionSaved {
  Tensor n, rstd;  // norm(x) [rows, width], FP32 [rows]
  Tensor qkv;      // after rope, or before q/k norms [rows, q + 2 kv]
  Tensor o, lse;   // [rows, q], FP32 [batch, heads, len]
  attention::Saved core;
  bool core_valid = false;
  Scaled n_fp8;  // transposed: in fp8 what backward reads of n, and what is kept instead of it

  bool normed() const { return n || n_fp8; }
};

struct AttentionLayer {
  const ModelConfig& config;
  const attention::Variant& variant;
  attention::Problem problem;  // of this rank's tokens
  Products::With products;
  Tensor rope_table;
  int layer = 0;
  const TokenSplit* split = nullptr;  // where other ranks have the rest of every sequence

  AttentionSaved make_kept(Keep, Context&) const;
  AttentionSaved complete(AttentionSaved kept, Pass, Context&) const;  // makes the rest in the caller's scope
  void forward(const Tensor& x, const ParamStore::Lease&, const AttentionSaved& all, const AttentionSaved& have, const Tensor& out,
               Context&) const;
  // d: gradient of `out`, and of x when it returns. Weights' gradients go where they belong.
  void backward(const Tensor& x, const ParamStore::Lease&, const AttentionSaved& all, const Tensor& d, Gradient into_dw, Context&) const;

 private:
  attention::Saved make_saved(Context&) const;
};

}  // namespace headroom::engine
