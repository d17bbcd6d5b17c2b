// The feed-forward half of a block: out = h + swiglu(norm(h)·Wgate_up)·Wdown. Calls as in attention_layer.h.
#pragma once
#include "engine/config.h"
#include "engine/keep.h"
#include "engine/products.h"

namespace headroom::engine {

struct FfnSaved {
  Tensor n, rstd;  // norm(h) [rows, width], FP32 [rows]
  Tensor gate_up;  // [rows, 2 ffn]
  Tensor act;      // [rows, ffn]
  bool act_kept = false;
  Scaled n_fp8, act_fp8;  // transposed: in fp8 what backward reads of n and act, and what is kept instead of them

  bool normed() const { return n || n_fp8; }
};

struct Ffn {
  const ModelConfig& config;
  Products::With products;
  std::int64_t rows;
  int layer = 0;

  FfnSaved make_kept(Keep, Context&) const;
  FfnSaved complete(FfnSaved kept, Pass, Context&) const;
  void forward(const Tensor& h, const ParamStore::Lease&, const FfnSaved& all, const FfnSaved& have, const Tensor& out, Context&) const;
  void backward(const Tensor& h, const ParamStore::Lease&, const FfnSaved& all, const Tensor& d, Gradient into_dw, Context&) const;
};

}  // namespace headroom::engine
