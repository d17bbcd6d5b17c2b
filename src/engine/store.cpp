#include "engine/store.h"

#include <algorithm>

#include "ops/copy/copy.h"
#include "ops/copy/split.h"
#include "ops/fill/fill.h"

namespace headroom::engine {

WholeStore::WholeStore(const ModelConfig& config, DType compute, Purpose purpose, Holding holding, Context& ctx)
    : layers_(int(config.layers)), tied_(config.tied) {
  const auto table = param_table(config);
  params_.reserve(table.size());
  for (const ParamSpec& spec : table) params_.push_back({spec, {}, {}, {}, {}, {}, {}});
  const bool halves = holding.masters == Masters::halves && compute == DType::bf16 && purpose == Purpose::training;
  const auto make_each = [&](Phase phase, DType type, Tensor Param::*which, const auto& wanted) {
    auto in = ctx.arena.in_phase(phase);
    for (Param& p : params_)
      if (wanted(p.spec)) p.*which = ctx.arena.make({p.spec.name, p.spec.layer}, type, p.spec.shape);
  };
  const auto every = [](const ParamSpec&) { return true; };
  const auto multiplied = [](const ParamSpec& s) { return s.multiplied; };
  make_each(Phase::parameter, DType::f32, &Param::master, [&](const ParamSpec& s) { return !(halves && s.multiplied); });
  if (compute != DType::f32) make_each(Phase::parameter, compute, &Param::copy, multiplied);
  if (halves) make_each(Phase::parameter, DType::u16, &Param::rest, multiplied);
  if (purpose == Purpose::forward) return;
  if (purpose == Purpose::gradients && holding.gradients == Gradients::none) holding.gradients = Gradients::half;  // nobody updates
  make_gradients(compute, holding, ctx);
  if (purpose == Purpose::gradients) return;
  make_each(Phase::optimizer, DType::f32, &Param::m, every);
  make_each(Phase::optimizer, DType::f32, &Param::v, every);
  for (const Param& p : params_) updates_.push_back({p.grad, p.master, p.m, p.v, p.copy, p.spec.decay, p.rest});
}

int WholeStore::group_of(const ParamSpec& s) const { return s.role == Role::embedding ? 0 : s.layer >= 0 ? 1 + s.layer : 1 + layers_; }

// Gradients that do not stand lie at the beginning of one tensor, as large as the largest group's.
// The head's is summed over chunks of rows and a tied embedding's twice: those stay FP32.
void WholeStore::make_gradients(DType compute, Holding holding, Context& ctx) {
  auto in = ctx.arena.in_phase(Phase::gradient);
  const auto of_block = [](const ParamSpec& s) { return s.multiplied && s.layer >= 0; };
  const auto type_of = [&](const ParamSpec& s) { return holding.gradients == Gradients::half && of_block(s) ? compute : DType::f32; };
  if (holding.updating == Updating::after) {
    for (Param& p : params_) p.grad = ctx.arena.make({p.spec.name, p.spec.layer}, type_of(p.spec), p.spec.shape);
    return;
  }
  const auto place_all = [&](char* base) {
    std::size_t at = 0, most = 0;
    int group = -1;
    for (Param& p : params_) {
      if (group_of(p.spec) != group) group = group_of(p.spec), at = 0;
      if (holding.gradients == Gradients::none && of_block(p.spec)) continue;
      p.grad = Tensor(base + at, type_of(p.spec), p.spec.shape);
      at += Arena::rounded(p.grad.bytes());
      most = std::max(most, at);
    }
    return most;
  };
  const Tensor all = ctx.arena.make("gradients of a group", DType::f32, {std::int64_t(place_all(nullptr) / sizeof(float))});
  place_all(all.as<char>());
}

void WholeStore::initialise(std::uint64_t seed, Context& ctx) {
  if (ctx.dry()) return;
  for (std::size_t index = 0; index < params_.size(); ++index) {
    const Param& p = params_[index];
    const Tensor& whole = p.rest ? p.m : p.master;
    if (p.spec.std == 0)
      fill::constant(whole, p.spec.mean, ctx);
    else
      fill::normal(whole, Random{seed}.stream(index), p.spec.mean, p.spec.std, ctx);
    if (p.rest) copy::split(whole, p.copy, p.rest, ctx);
    for (const Tensor& t : {p.m, p.v})
      if (t) fill::constant(t, 0, ctx);
  }
  refresh_copies(ctx);
}

void WholeStore::refresh_copies(Context& ctx) {
  for (const Param& p : params_)
    if (p.copy && p.master) copy::copy(p.master, p.copy, ctx);
}

void WholeStore::update(const adamw::Hyper& hyper, const Tensor& state, Context& ctx) {
  const auto here = ctx.inside("optimiser");
  auto phase = ctx.arena.in_phase(Phase::optimizer);
  adamw::update(updates_, state, hyper, ctx);
}

void WholeStore::advance(int group, Context& ctx) {
  auto phase = ctx.arena.in_phase(Phase::optimizer);
  std::vector<adamw::Update> standing;
  for (std::size_t i = 0; i < params_.size(); ++i)
    if (group_of(params_[i].spec) == group && updates_[i].grad) standing.push_back(updates_[i]);
  adamw::advance(standing, numbers_, ctx);
}

Weight WholeStore::weight(int group, Role role) const {
  const auto each = (params_.size() - (tied_ ? 2 : 3)) / std::size_t(layers_);  // weights of a block
  std::size_t at = group == 0 || (role == Role::head && tied_) ? 0 : 1 + each * std::size_t(group - 1);
  while (at > 0 && params_[at].spec.role != role) ++at;
  const Param& p = params_[at];
  const bool by_product = !p.grad && !updates_.empty();
  return {p.copy ? p.copy : p.master, p.grad, by_product ? &updates_[at] : nullptr, numbers_};
}

}  // namespace headroom::engine
