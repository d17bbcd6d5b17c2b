#include "engine/store.h"

#include "ops/copy/copy.h"
#include "ops/fill/fill.h"

namespace headroom::engine {

WholeStore::WholeStore(const ModelConfig& config, DType compute, Purpose purpose, Context& ctx)
    : layers_(int(config.layers)), tied_(config.tied) {
  const auto table = param_table(config);
  params_.reserve(table.size());
  for (const ParamSpec& spec : table) params_.push_back({spec, {}, {}, {}, {}, {}});
  const auto make_each = [&](Phase phase, DType type, Tensor Param::*which) {
    auto in = ctx.arena.in_phase(phase);
    for (Param& p : params_) p.*which = ctx.arena.make({p.spec.name, p.spec.layer}, type, p.spec.shape);
  };
  make_each(Phase::parameter, DType::f32, &Param::master);
  if (compute != DType::f32) {
    auto in = ctx.arena.in_phase(Phase::parameter);
    for (Param& p : params_)
      if (p.spec.multiplied) p.copy = ctx.arena.make({p.spec.name, p.spec.layer}, compute, p.spec.shape);
  }
  if (purpose == Purpose::forward) return;
  make_each(Phase::gradient, DType::f32, &Param::grad);
  if (purpose == Purpose::gradients) return;
  make_each(Phase::optimizer, DType::f32, &Param::m);
  make_each(Phase::optimizer, DType::f32, &Param::v);
  for (const Param& p : params_) updates_.push_back({p.grad, p.master, p.m, p.v, p.copy, p.spec.decay});
}

void WholeStore::initialise(std::uint64_t seed, Context& ctx) {
  if (ctx.dry()) return;
  for (std::size_t index = 0; index < params_.size(); ++index) {
    const Param& p = params_[index];
    if (p.spec.std == 0)
      fill::constant(p.master, p.spec.mean, ctx);
    else
      fill::normal(p.master, Random{seed}.stream(index), p.spec.mean, p.spec.std, ctx);
    for (const Tensor& t : {p.m, p.v})
      if (t) fill::constant(t, 0, ctx);
  }
  refresh_copies(ctx);
}

void WholeStore::refresh_copies(Context& ctx) {
  for (const Param& p : params_)
    if (p.copy) copy::copy(p.master, p.copy, ctx);
}

void WholeStore::update(const adamw::Hyper& hyper, const Tensor& state, Context& ctx) {
  const auto here = ctx.inside("optimiser");
  auto phase = ctx.arena.in_phase(Phase::optimizer);
  adamw::update(updates_, state, hyper, ctx);
}

Weight WholeStore::weight(int group, Role role) const {
  const auto each = (params_.size() - (tied_ ? 2 : 3)) / std::size_t(layers_);  // weights of a block
  std::size_t at = group == 0 || (role == Role::head && tied_) ? 0 : 1 + each * std::size_t(group - 1);
  while (at > 0 && params_[at].spec.role != role) ++at;
  const Param& p = params_[at];
  return {p.copy ? p.copy : p.master, p.grad};
}

}  // namespace headroom::engine
