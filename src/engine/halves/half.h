// Half — half a block: out = x + core(norm(x)), out = x + norm(core(x)), or both norms. The norms, the residual stream and what backward
// computes again are here, once; a core is what lies between (grouped_attention.h, latent_attention.h, dense.h, experts.h).
//
// Order of calls: all = complete(make_kept(keep)); forward(x, all, {}, out). For backward the kept tensors are completed anew and
// forward is called again for those that were not kept (`have` says which hold values already); then backward, which uses up `all`.
//
// A core has a Saved of its own (HalfSaved and its tensors), its words, and these calls, in this order:
//   make_kept, complete     its tensors of Saved
//   multiplies(have)        whether forward lacks what its first product makes
//   first                   its products of the norm's result, as far as `have` lacks them
//   middle                  what follows, as far as `have` lacks it
//   last                    its result, with what is to be added to it
//   backward                from dy to the gradients of what the first products made, in the caller's scope
//   first_dw, first_dx      from those to their weights' gradients, and to the gradient of what they read
//
// One norm may serve both halves of a block (Decoder::one_norm): the second half is lent its result, and both add to one gradient of it.
#pragma once
#include "engine/halves/norm.h"
#include "engine/halves/products.h"
#include "engine/recipe/keep.h"

namespace headroom::engine {

struct HalfSaved {
  Tensor n;               // norm(x) [rows, width], where there is a norm before and it is stored; of the second half, the first one's
  Tensor dn;              // its gradient, where both halves add to it
  NormStats stats;        // statistics of the norm before
  Tensor y;               // input of a norm after the half [rows, width]
  NormStats after_stats;  // statistics of the norm after
  Scaled n_fp8;           // fp8: the first product's operand, transposed for backward; kept instead of n

  bool normed() const { return n || n_fp8; }
};

struct HalfWords {  // names of tensors and ops, and which weights a half leases
  const char* module;
  WeightRole norm, norm_bias, norm_after;
  Quantised reads;  // what the first product reads
  const char *rstd, *mean, *n, *dn, *after_rstd, *after_mean, *y, *dy, *after;
};

struct InBlock {  // given to both halves of a block
  const Decoder& decoder;
  Products::With products;
  std::int64_t rows;
  int layer = 0;

  DType stored() const { return products.formats.stored.dtype; }
};

struct Lent {  // one norm for both halves: its result and gradient
  Tensor n, dn = {};
};

template <class Core>
struct Half {
  Core core;
  using Saved = typename Core::Saved;

  Saved make_kept(Keep, Context&) const;
  Saved complete(Saved kept, Pass, Context&, const Lent& = {}) const;  // makes the rest in the caller's scope
  void forward(const Tensor& x, const ParamStore::Lease&, const Saved& all, const Saved& have, const Tensor& out, Context&) const;
  // d: gradient of `out`, and of x when it returns. Weights' gradients go where they belong.
  void backward(const Tensor& x, const ParamStore::Lease&, const Saved& all, const Tensor& d, Gradient into_dw, Context&) const;

 private:
  static constexpr bool is_second = Core::words.norm == WeightRole::norm2;
  static constexpr HalfWords words = Core::words;
  const Decoder& decoder() const { return core.decoder; }
  bool normed() const { return is_second ? decoder().ffn_norm() : decoder().norms_before; }  // by a norm of its own
  Norm before() const { return {decoder(), words.norm, words.norm_bias, {words.rstd, core.layer}, {words.mean, core.layer}, core.rows}; }
  Norm after() const {
    return {decoder(), words.norm_after, WeightRole::other, {words.after_rstd, core.layer}, {words.after_mean, core.layer}, core.rows};
  }
  bool as_made(Context& ctx) const { return normed() && before().as_made(core.products, ctx.device); }
  Tensor make(const char* name, Context& ctx) const {
    return ctx.arena.make({name, core.layer}, core.stored(), {core.rows, decoder().width});
  }
  Scaled make_n_fp8(Context& ctx) const {
    return Products::make_transposed(core.products.formats, words.reads, core.rows, decoder().width, core.layer, ctx);
  }
};

template <class Core>
typename Core::Saved Half<Core>::make_kept(Keep keep, Context& ctx) const {
  Saved s;
  if (keep == Keep::input) return s;
  if (normed()) s.stats = before().make(ctx);
  core.make_kept(s, keep, ctx);
  if (decoder().norms_after) s.after_stats = after().make(ctx);
  if (decoder().norms_after && set_of(keep) <= Keep::no_cheap) s.y = make(words.y, ctx);
  if (keep > Keep::no_product || !normed()) return s;
  if (core.products.formats.quantised())
    s.n_fp8 = make_n_fp8(ctx);
  else
    s.n = make(words.n, ctx);
  return s;
}

template <class Core>
typename Core::Saved Half<Core>::complete(Saved s, Pass pass, Context& ctx, const Lent& lent) const {
  if (lent.n) s.n = lent.n, s.dn = lent.dn;
  if (!s.stats && normed()) s.stats = before().make(ctx);
  core.complete(s, pass, ctx);
  if (!s.after_stats && decoder().norms_after) s.after_stats = after().make(ctx);
  if (!s.y && decoder().norms_after) s.y = make(words.y, ctx);
  if (!s.n && normed() && !as_made(ctx)) s.n = make(words.n, ctx);
  if (core.products.formats.quantised() && pass == Pass::backward && !s.n_fp8) s.n_fp8 = make_n_fp8(ctx);
  return s;
}

template <class Core>
void Half<Core>::forward(const Tensor& x, const ParamStore::Lease& w, const Saved& all, const Saved& have, const Tensor& out,
                         Context& ctx) const {
  const auto here = ctx.inside({words.module, core.layer});
  Products p(core.products, core.layer, w, ctx);
  const bool made = as_made(ctx);
  if (made && !have.stats) before().measure(x, w, all.stats, ctx);
  if (normed() && !made && !have.normed()) before().forward(x, w, all.n, all.stats, ctx);
  {
    auto scope = ctx.arena.scope();
    const quantise::Request from = made ? before().made(x, w, all.stats) : quantise::Request{all.n ? all.n : x};
    const Read in = p.read_missing(words.reads, from, core.multiplies(have), have.n_fp8 ? Scaled() : all.n_fp8);
    if (core.multiplies(have)) core.first(p, in, all, have, ctx);
  }
  core.middle(p, w, all, have, ctx);
  if (!decoder().norms_after) {
    if (out) core.last(p, w, all, out, x, ctx);
    return;
  }
  if (!have.y) core.last(p, w, all, all.y, {}, ctx);
  if (out) return after().forward(all.y, w, out, all.after_stats, ctx, x);
  if (have.after_stats) return;
  auto scope = ctx.arena.scope();  // backward needs what the norm found, not what it made
  after().forward(all.y, w, make(words.after, ctx), all.after_stats, ctx);
}

template <class Core>
void Half<Core>::backward(const Tensor& x, const ParamStore::Lease& w, const Saved& all, const Tensor& d, Gradient into_dw,
                          Context& ctx) const {
  const auto here = ctx.inside({words.module, core.layer});
  auto scope = ctx.arena.scope();
  Products p(core.products, core.layer, w, ctx, into_dw);
  Tensor dy = d;
  if (decoder().norms_after) {
    dy = ctx.arena.make({words.dy, core.layer}, d.dtype, d.shape);
    after().backward(all.y, w, all.after_stats, d, dy, Gradient::overwrite, into_dw, ctx);
  }
  const auto gradients = core.backward(p, w, all, dy, into_dw, ctx);
  core.first_dw(p, gradients, {all.n ? all.n : x, {}, all.n_fp8});
  if (!normed()) {  // then there is a norm after, and dy, which a waiting product reads, is not d; or the first half's norm takes the gradient
    core.first_dx(p, gradients, all.dn ? all.dn : d, all.dn ? Gradient::overwrite : Gradient::accumulate, ctx);
    return p.finish();
  }
  // Where norm(x) was stored, it has been used for the last time, unless its product waits and reads it: its gradient takes its place.
  const bool takes_its_place = all.n && (p.quantised() || !p.waiting());
  const Tensor dn = all.dn ? all.dn : takes_its_place ? all.n : ctx.arena.make({words.dn, core.layer}, d.dtype, d.shape);
  core.first_dx(p, gradients, dn, all.dn ? Gradient::accumulate : Gradient::overwrite, ctx);
  p.finish();
  before().backward(x, w, all.stats, dn, d, Gradient::accumulate, into_dw, ctx);
}

}  // namespace headroom::engine
