// Attending — what every kind of attention has: its variant and problem, positions that turn, and the call itself.
#pragma once
#include "engine/halves/half.h"
#include "engine/halves/split_tokens.h"
#include "ops/attention/attention.h"
#include "ops/rope/rope.h"

namespace headroom::engine {

struct AttentionSaved : HalfSaved {
  Tensor o, lse;  // [rows, heads · value dimension], FP32 [batch, heads, len]
  attention::Saved core;
  bool core_valid = false;
};

struct Attending : InBlock {
  static constexpr HalfWords words{.module = "attention",
                                   .norm = WeightRole::norm1,
                                   .norm_bias = WeightRole::norm1_bias,
                                   .norm_after = WeightRole::norm1_after,
                                   .reads = Quantised::norm1,
                                   .rstd = "norm1.rstd",
                                   .mean = "norm1.mean",
                                   .n = "norm1.y",
                                   .dn = "norm1.dy",
                                   .after_rstd = "norm1_after.rstd",
                                   .after_mean = "norm1_after.mean",
                                   .y = "attention.out",
                                   .dy = "attention.dout",
                                   .after = "attention.normed"};

  const SelfAttention& shape;
  const attention::Variant& variant;
  attention::Problem problem;         // for this rank's tokens
  Tensor rope_table;                  // none: positions do not rotate
  const TokenSplit* split = nullptr;  // set if other ranks have the rest of every sequence
  attention::Extras with = {};        // the documents' borders, if rows are packed
  Tensor positions = {};              // each token's position, if rows are packed
  Tensor cache = {};                  // serving: keys and values are read from here
  bool absorbed = false;              // latent attention: the problem is absorbed_problem_of

  void last(Products&, const ParamStore::Lease&, const AttentionSaved& all, const Tensor& to, const Tensor& add, Context&) const;

 protected:
  struct Heads {  // q, k and v, or their gradients, as attention takes them
    Tensor q, k, v;
  };
  void make_o(AttentionSaved&, Context&) const;     // o and lse, where they are missing
  void make_core(AttentionSaved&, Context&) const;  // what the variant keeps, where it is missing
  bool attends(const AttentionSaved& all, const AttentionSaved& have) const { return !have.o || (all.core.p && !have.core_valid); }
  void attend(Heads, const AttentionSaved& all, Context&) const;
  // From dy, through the product out, to the gradients of q, k and v; in the caller's scope. `at` makes q, k and v as they were.
  // turned: dq and dk come out already turned back; it requires turns_in_backward().
  template <class At>
  void attend_backward(Products&, const AttentionSaved& all, const Tensor& dy, const Heads& d, const At& at, Context&,
                       bool turned = false) const;
  bool turns_in_backward() const;
  void turn(Tensor heads, rope::Turn, Context&) const;  // the first elements of every head, as many as turn
  Tensor heads_in(const Tensor& rows, std::int64_t column, std::int64_t heads, std::int64_t dim) const;  // a view [batch, len, heads, dim]
};

template <class At>
void Attending::attend_backward(Products& p, const AttentionSaved& all, const Tensor& dy, const Heads& d, const At& at, Context& ctx,
                                bool turned) const {
  const Tensor d_o = ctx.arena.make({"attention.do", layer}, all.o.dtype, all.o.shape);
  {
    auto copies = ctx.arena.scope();
    const Read read = p.read(Quantised::d_attention, dy, Copies::both);
    p.dw({"attention.out.dw", layer}, read, p.read(Quantised::o, all.o, Copies::transposed), WeightRole::out);
    p.dx({"attention.out.dx", layer}, read, WeightRole::out, d_o);
    if (p.quantised()) p.finish();  // what it reads ends here, and its weight has been used for the last time
  }
  const Heads x = at();
  const auto o_like = [&](const Tensor& t) { return Tensor(t.data, t.dtype, problem.o_shape()); };
  attention::Backward b{x.q, x.k, x.v, o_like(all.o), all.lse, o_like(d_o), {}, d.q, d.k, d.v, all.core, with};
  if (turned) b.turned_by = rope_table;
  split ? split->backward(b, layer, ctx) : attention::backward(variant, problem, b, ctx);
}

}  // namespace headroom::engine
