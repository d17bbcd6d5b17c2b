// A dense layer, the core of a block's second half: act(n·Wgate_up)·Wdown. act is SwiGLU, or what else the model has.
#pragma once
#include "engine/halves/half.h"

namespace headroom::engine {

// act = function(in), with a gate where the layer has one; and its gradient, which takes the place of `in`. again: where act is made once more.
void activate(const FeedForward&, const Tensor& in, const Tensor& act, Context&);
void activate_backward(const FeedForward&, const Tensor& in, const Tensor& dact, const Tensor& again, Context&);

struct Dense : InBlock {
  struct Saved : HalfSaved {
    Tensor gate_up;                               // [rows, 2 ffn], or [rows, ffn] without a gate
    Scaled gate_up_fp8;                           // kept instead of it (Keep::gate_up_fp8)
    Tensor act;                                   // [rows, ffn]
    bool act_kept = false, act_by_first = false;  // by_first: the first product makes it
    Scaled act_fp8;                               // transposed, as n_fp8
  };
  static constexpr HalfWords words{.module = "feed-forward",
                                   .norm = WeightRole::norm2,
                                   .norm_bias = WeightRole::norm2_bias,
                                   .norm_after = WeightRole::norm2_after,
                                   .reads = Quantised::norm2,
                                   .rstd = "norm2.rstd",
                                   .mean = "norm2.mean",
                                   .n = "norm2.y",
                                   .dn = "norm2.dy",
                                   .after_rstd = "norm2_after.rstd",
                                   .after_mean = "norm2_after.mean",
                                   .y = "ffn.out",
                                   .dy = "ffn.dout",
                                   .after = "ffn.normed"};

  const FeedForward& shape;

  void make_kept(Saved&, Keep, Context&) const;
  void complete(Saved&, Pass, Context&) const;
  bool multiplies(const Saved& have) const { return !have.gate_up && !have.gate_up_fp8; }
  void first(Products&, const Read& in, const Saved& all, const Saved& have, Context&) const;
  void middle(Products&, const ParamStore::Lease&, const Saved& all, const Saved& have, Context&) const;
  void last(Products&, const ParamStore::Lease&, const Saved& all, const Tensor& to, const Tensor& add, Context&) const;
  // What has been used for the last time gives its place to its own gradient, so backward takes no memory beside the saved tensors, but for
  // the gradients of a product that was kept, of what a norm after takes and, where products wait for the update, of the norm's output; and
  // in fp8 for 8-bit copies.
  Read backward(Products&, const ParamStore::Lease&, const Saved& all, const Tensor& dy, Gradient into_dw, Context&) const;

  void first_dw(Products& p, const Read& d, const Read& n) const { p.dw({"ffn.gate_up.dw", layer}, d, n, WeightRole::gate_up); }
  void first_dx(Products& p, const Read& d, const Tensor& to, Gradient into, Context&) const {
    p.dx({"ffn.gate_up.dx", layer}, d, WeightRole::gate_up, to, into);
  }

 private:
  std::int64_t in_width() const { return shape.in_width(shape.width); }
  bool gated(Context&) const;                  // SwiGLU runs in the products beside it
  bool as_made(quantise::Of, Context&) const;  // SwiGLU's product or gradient: quantised as it is made, in fp8
};

}  // namespace headroom::engine
