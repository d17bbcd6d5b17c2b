// Attention, the core of a block's first half: attention(turn(n·Wqkv))·Wout. Where the model has them: biases, norms of q and k before
// they turn, positions that turn nothing. Keys' heads each serve a group of queries' heads.
#pragma once
#include "engine/halves/attending.h"

namespace headroom::engine {

struct GroupedAttention : Attending {
  struct Saved : AttentionSaved {
    Tensor qkv;  // turned, or before q/k norms [rows, q + 2 kv]
  };

  void make_kept(Saved&, Keep, Context&) const;
  void complete(Saved&, Pass, Context&) const;
  bool multiplies(const Saved& have) const { return !have.qkv; }
  void first(Products&, const Read& in, const Saved& all, const Saved& have, Context&) const;
  void middle(Products&, const ParamStore::Lease&, const Saved& all, const Saved& have, Context&) const;
  Read backward(Products&, const ParamStore::Lease&, const Saved& all, const Tensor& dy, Gradient into_dw, Context&) const;
  void first_dw(Products& p, const Read& d, const Read& n) const { p.dw({"attention.qkv.dw", layer}, d, n, WeightRole::qkv); }
  void first_dx(Products& p, const Read& d, const Tensor& to, Gradient into, Context&) const {
    p.dx({"attention.qkv.dx", layer}, d, WeightRole::qkv, to, into);
  }

 private:
  std::int64_t qkv_width() const { return shape.q_width() + shape.k_width() + shape.v_width(); }
  struct Views;
  Views views_of(const Tensor& qkv) const;
  Views norm_heads(const Tensor& qkv, const ParamStore::Lease&, Context&) const;
  void norm_backward(const Views& x, const Views& d, const ParamStore::Lease&, Gradient into_dw, Context&) const;
};

}  // namespace headroom::engine
