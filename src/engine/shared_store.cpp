#include "engine/shared_store.h"

namespace headroom::engine {

namespace {

Tensor whole(const ParamSpec& s, DType type) { return Tensor(nullptr, type, s.shape); }
double bytes_of(const ParamSpec& s, DType type) { return double(s.shape.count()) * double(size_of(type)); }

}  // namespace

SharedStore::SharedStore(const ModelConfig& config, DType compute, Purpose purpose, Ranks ranks, Context& ctx)
    : compute_(compute), purpose_(purpose), ranks_(ranks), ctx_(ctx), layers_(int(config.layers)), tied_(config.tied) {
  check(ctx.dry(), Code::unsupported, "step: {} ranks are forecast, not run; a step runs on one device", ranks.count);
  for (const ParamSpec& spec : param_table(config)) {
    const bool last = spec.role == Role::final_norm || spec.role == Role::head;
    parts_.push_back({spec, last ? layers_ + 1 : spec.layer + 1, {}, {}, {}, {}, {}});
  }
  const auto make_each = [&](Phase phase, DType type, Tensor Part::*which, auto wanted, auto sharded) {
    auto in = ctx.arena.in_phase(phase);
    for (Part& p : parts_)
      if (wanted(p))
        p.*which = ctx.arena.make({p.spec.name, p.spec.layer}, type,
                                  sharded(p) ? Shape{(p.spec.shape.count() + ranks_.count - 1) / ranks_.count} : p.spec.shape);
  };
  const auto always = [](const Part&) { return true; };
  const auto copied = [&](const Part& p) { return compute_ != DType::f32 && p.spec.multiplied; };
  const auto from = [&](Sharding s) { return [this, s](const Part&) { return ranks_.sharding >= s; }; };
  make_each(Phase::parameter, DType::f32, &Part::master, always, [&](const Part& p) {
    return ranks_.sharding == Sharding::everything || (ranks_.sharding >= Sharding::optimizer && copied(p));
  });
  make_each(Phase::parameter, compute_, &Part::copy, copied, from(Sharding::everything));
  if (purpose_ == Purpose::forward) return;
  make_each(Phase::gradient, DType::f32, &Part::grad, always, from(Sharding::gradients));
  if (purpose_ == Purpose::gradients) return;
  make_each(Phase::optimizer, DType::f32, &Part::m, always, from(Sharding::optimizer));
  make_each(Phase::optimizer, DType::f32, &Part::v, always, from(Sharding::optimizer));
}

void SharedStore::send(const char* collective, double bytes, double times) const {
  const double others = double(ranks_.count - 1) / double(ranks_.count);
  const auto op = ctx_.note(collective, {DType::f32}, {0, bytes * (2 - others), times * others * bytes});
}

bool SharedStore::belongs(const Part& p, int group) const {
  return p.group == group || (tied_ && group == layers_ + 1 && p.spec.role == Role::embedding);
}

void SharedStore::gather(int group) {
  gradients_lent_ = purpose_ != Purpose::forward && ranks_.sharding >= Sharding::gradients && ctx_.arena.phase() == Phase::backward;
  const bool weights = ranks_.sharding == Sharding::everything && !(group == 0 && gradients_lent_);  // the embedding's backward reads none
  loan_.emplace(ctx_.arena);
  double bytes = 0;
  for (const Part& p : parts_) {
    if (!belongs(p, group)) continue;
    const DType type = p.copy ? compute_ : DType::f32;
    if (weights) {
      auto in = ctx_.arena.in_phase(Phase::parameter);
      (void)ctx_.arena.make({p.spec.name, p.spec.layer}, type, p.spec.shape);
      bytes += bytes_of(p.spec, type);
    }
    if (gradients_lent_) {
      auto in = ctx_.arena.in_phase(Phase::gradient);
      (void)ctx_.arena.make({p.spec.name, p.spec.layer}, DType::f32, p.spec.shape);
    }
  }
  if (weights) send("all-gather of weights", bytes, 1);
}

void SharedStore::release(int group) {
  loan_.reset();
  if (!gradients_lent_) return;
  double bytes = 0;
  for (const Part& p : parts_)
    if (belongs(p, group)) bytes += bytes_of(p.spec, DType::f32);
  send("reduce-scatter of gradients", bytes, 1);
}

Weight SharedStore::weight(int group, Role role) const {
  const Role held = role == Role::head && tied_ ? Role::embedding : role;
  for (const Part& p : parts_)
    if (belongs(p, group) && p.spec.role == held)
      return {whole(p.spec, p.copy ? compute_ : DType::f32), purpose_ == Purpose::forward ? Tensor() : whole(p.spec, DType::f32)};
  throw Error(Code::bad_argument, fmt::format("store: group {} has no such weight", group));
}

void SharedStore::update(const adamw::Hyper& hyper, const Tensor& state, Context& ctx) {
  auto scope = ctx.arena.scope();
  auto phase = ctx.arena.in_phase(Phase::optimizer);
  double gradients = 0, weights = 0;
  for (const Part& p : parts_) {
    gradients += bytes_of(p.spec, DType::f32);
    weights += bytes_of(p.spec, p.copy ? compute_ : DType::f32);
  }
  if (ranks_.sharding == Sharding::none) send("all-reduce of gradients", gradients, 2);
  if (ranks_.sharding == Sharding::optimizer) send("reduce-scatter of gradients", gradients, 1);
  const auto mine = [](const Part& p, const Tensor& t) { return t ? Tensor(nullptr, t.dtype, p.m.shape) : Tensor(); };  // what m covers
  std::vector<adamw::Update> updates;
  for (const Part& p : parts_) updates.push_back({mine(p, p.grad), mine(p, p.master), p.m, p.v, mine(p, p.copy), p.spec.decay});
  adamw::update(updates, state, hyper, ctx);
  if (ranks_.sharding == Sharding::optimizer || ranks_.sharding == Sharding::gradients) send("all-gather of weights", weights, 1);
}

}  // namespace headroom::engine
