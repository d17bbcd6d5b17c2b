// The feed-forward half of a block: out = h + act(norm(h)·Wgate_up)·Wdown, act SwiGLU or what else the model has. Calls as in
// attention_layer.h.
#pragma once
#include "engine/keep.h"
#include "engine/norm.h"
#include "engine/products.h"

namespace headroom::engine {

struct FfnSaved {
  Tensor n;            // norm(h) [rows, width], where there is a norm before and it is stored
  NormStats stats;     // of it
  Tensor gate_up;      // [rows, 2 ffn], or [rows, ffn] without a gate
  Scaled gate_up_fp8;  // kept instead of it (Keep::gate_up_fp8)
  Tensor act;          // [rows, ffn]
  bool act_kept = false;
  Tensor y;               // input of a norm after the half [rows, width]
  NormStats after_stats;  // of it
  Scaled n_fp8, act_fp8;  // transposed: in fp8 what backward reads of what the products take, and what is kept instead of n and act

  bool normed() const { return n || n_fp8; }
};

struct Ffn {
  const Decoder& decoder;
  const FeedForward& shape;
  Products::With products;
  std::int64_t rows;
  int layer = 0;

  FfnSaved make_kept(Keep, Context&) const;
  FfnSaved complete(FfnSaved kept, Pass, Context&) const;
  void forward(const Tensor& h, const ParamStore::Lease&, const FfnSaved& all, const FfnSaved& have, const Tensor& out, Context&) const;
  void backward(const Tensor& h, const ParamStore::Lease&, const FfnSaved& all, const Tensor& d, Gradient into_dw, Context&) const;

 private:
  Norm before() const { return {decoder, Role::norm2, Role::norm2_bias, {"norm2.rstd", layer}, {"norm2.mean", layer}, rows}; }
  Norm after() const { return {decoder, Role::norm2_after, Role::other, {"norm2_after.rstd", layer}, {"norm2_after.mean", layer}, rows}; }
  void act(const FfnSaved& all, Context&) const;
  void act_backward(const FfnSaved& all, const Tensor& dact, Context&) const;
  bool as_made(quantise::Of, Context&) const;  // SwiGLU's product or gradient: quantised as it is made, in fp8
};

}  // namespace headroom::engine
