// Experts, a core of a block's second half: a router chooses a few for each token, and one that every token takes may be beside them.
// Counted, not computed (ops/experts). Biases of experts and the shared expert's gate are weights that no op of this reads.
#pragma once
#include "engine/halves/dense.h"
#include "ops/experts/experts.h"

namespace headroom::engine {

struct Experts : InBlock {
  struct Saved : HalfSaved {
    experts::Routing routing;
    Tensor x, gate_up, act, routed_y;             // a row for each of a token's experts
    Tensor shared_gate_up, shared_act, shared_y;  // the shared expert's; y only where a gate multiplies it
    bool act_kept = false;
  };
  struct Gradients {
    Tensor logits, shared_gate_up, x;
    experts::Routing routing;
  };
  static constexpr HalfWords words = Dense::words;

  const FeedForward& shape;

  void make_kept(Saved&, Keep, Context&) const;
  void complete(Saved&, Pass, Context&) const;
  bool multiplies(const Saved& have) const { return !have.x; }
  void first(Products&, const Read& in, const Saved& all, const Saved& have, Context&) const;
  void middle(Products&, const ParamStore::Lease&, const Saved& all, const Saved& have, Context&) const;
  void last(Products&, const ParamStore::Lease&, const Saved& all, const Tensor& to, const Tensor& add, Context&) const;
  Gradients backward(Products&, const ParamStore::Lease&, const Saved& all, const Tensor& dy, Gradient into_dw, Context&) const;
  void first_dw(Products&, const Gradients&, const Read& n) const;
  void first_dx(Products&, const Gradients&, const Tensor& to, Gradient into, Context&) const;

 private:
  bool shared() const { return shape.shared_width > 0; }
  template <class Wanted>
  void make_missing(Saved&, const Wanted&, Context&) const;
};

}  // namespace headroom::engine
