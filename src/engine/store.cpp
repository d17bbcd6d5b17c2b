#include "engine/store.h"

#include <algorithm>

#include "base/convert.h"
#include "base/random.h"

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
}

void WholeStore::initialise(std::uint64_t seed, Context& ctx) {
  if (ctx.dry()) return;
  constexpr std::int64_t piece = 16384;
  for (std::size_t index = 0; index < params_.size(); ++index) {
    const Param& p = params_[index];
    const Random random = Random{seed}.stream(index);
    ctx.share((p.master.count() + piece - 1) / piece, [&](std::int64_t at, int) {
      for (auto i = at * piece; i < std::min(p.master.count(), (at + 1) * piece); ++i)
        p.master.as<float>()[i] =
            p.spec.std == 0 ? float(p.spec.mean) : float(p.spec.mean + p.spec.std * double(random.normal(std::uint64_t(i))));
    });
    for (const Tensor& t : {p.m, p.v})
      if (t) std::fill_n(t.as<float>(), t.count(), 0.0f);
  }
  refresh_copies(ctx);
}

void WholeStore::refresh_copies(Context& ctx) {
  if (ctx.dry()) return;
  constexpr std::int64_t piece = 65536;
  for (const Param& p : params_)
    if (p.copy)
      with_float(p.copy.dtype, [&]<class T>() {
        ctx.share((p.copy.count() + piece - 1) / piece, [&](std::int64_t at, int) {
          for (auto i = at * piece; i < std::min(p.copy.count(), (at + 1) * piece); ++i)
            p.copy.as<T>()[i] = narrow<T>(p.master.as<float>()[i]);
        });
      });
}

void WholeStore::update(const adamw::Hyper& hyper, const Tensor& state, Context& ctx) {
  const auto here = ctx.inside("optimiser");
  auto scope = ctx.arena.scope();
  auto phase = ctx.arena.in_phase(Phase::optimizer);
  const Tensor slots = ctx.arena.make("norm.of_each", DType::f64, {std::int64_t(params_.size())});
  for (std::size_t i = 0; i < params_.size(); ++i)
    adamw::sum_squares(params_[i].grad, Tensor(slots.as<double>() + i, DType::f64, {1}), ctx);
  adamw::prepare(slots, state, hyper, ctx);
  for (const Param& p : params_) adamw::step({p.grad, p.master, p.m, p.v, p.copy, p.spec.decay}, state, hyper, ctx);
}

Weight WholeStore::weight(int group, Role role) const {
  const auto each = (params_.size() - (tied_ ? 2 : 3)) / std::size_t(layers_);  // weights of a block
  std::size_t at = group == 0 || (role == Role::head && tied_) ? 0 : 1 + each * std::size_t(group - 1);
  while (at > 0 && params_[at].spec.role != role) ++at;
  const Param& p = params_[at];
  return {p.copy ? p.copy : p.master, p.grad};
}

}  // namespace headroom::engine
