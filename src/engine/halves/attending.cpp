#include "engine/halves/attending.h"

#include <algorithm>

#include "ops/bias/bias.h"

namespace headroom::engine {

Tensor Attending::heads_in(const Tensor& rows_of, std::int64_t column, std::int64_t heads, std::int64_t dim) const {
  Tensor t = matmul::part(rows_of, 1, column, column + heads * dim);
  const auto row = rows_of.stride[0];
  t.shape = {problem.batch, problem.len_q, heads, dim};
  t.stride = {problem.len_q * row, row, dim, 1};
  return t;
}

void Attending::turn(Tensor heads, rope::Turn way, Context& ctx) const {
  if (!rope_table) return;
  heads.shape.dim[3] = rope_table.shape[1];
  rope::rotate(heads, rope_table, way, ctx, positions);
}

// Attention's backward turns the gradients of q and k back itself where whole heads turn, and this rank has whole sequences that are not packed.
bool Attending::turns_in_backward() const {
  return rope_table && rope_table.shape[1] == problem.head_dim && !positions && !split && attention::turns_back(variant, problem);
}

void Attending::make_o(AttentionSaved& s, Context& ctx) const {
  if (!s.o) s.o = ctx.arena.make({"attention.o", layer}, stored(), {rows, shape.out_width()});
  if (!s.lse) s.lse = ctx.arena.make({"attention.lse", layer}, DType::f32, problem.lse_shape());
}

void Attending::make_core(AttentionSaved& s, Context& ctx) const {
  if (s.core_valid) return;
  s.core = split ? split->make_saved(ctx) : variant.make_saved(problem, ctx);
  s.core_valid = true;
}

void Attending::attend(Heads x, const AttentionSaved& all, Context& ctx) const {
  if (cache) x.k = Tensor(cache.data, stored(), problem.k_shape()), x.v = Tensor(cache.data, stored(), problem.v_shape());
  const attention::Forward f{x.q, x.k, x.v, Tensor(all.o.data, all.o.dtype, problem.o_shape()), all.lse, all.core, with};
  split ? split->forward(f, layer, ctx) : attention::forward(variant, problem, f, ctx);
  const bool written_out = shape.latent() && !absorbed;  // every head's keys and values, which then are read and not the cache
  if (!cache || written_out || !ctx.walk) return;
  double& bytes = ctx.walk->steps.back().cost.bytes;  // a cache of other numbers is only counted; a window reads less than all of it
  const double share =
      double(shape.cached()) * double(size_of(cache.dtype)) * double(problem.batch * problem.len_k) / double(x.k.bytes() + x.v.bytes());
  bytes = std::max(bytes * share, bytes - (1 - share) * double(x.k.bytes() + x.v.bytes()));
}

void Attending::last(Products& p, const ParamStore::Lease& w, const AttentionSaved& all, const Tensor& to, const Tensor& add,
                     Context& ctx) const {
  {
    auto scope = ctx.arena.scope();
    p.forward({"attention.out", layer}, p.read(Quantised::o, all.o, Copies::as_is), WeightRole::out, to, add);
  }
  if (shape.out_bias) bias::add(to, w[WeightRole::out_bias].w, ctx);
}

}  // namespace headroom::engine
