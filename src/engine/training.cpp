#include "engine/training.h"

#include <cmath>

#include "base/convert.h"
#include "engine/shared_store.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/rope/rope.h"

namespace headroom::engine {

namespace {

attention::Problem problem_of(const Recipe& r) {
  attention::Problem p;
  p.batch = r.batch, p.heads = r.model.heads, p.kv_heads = r.model.kv_heads;
  p.len_q = p.len_k = r.len, p.head_dim = r.model.head_dim;
  p.mask = attention::Mask::causal();
  p.precision = r.precision;
  return p;
}

// A GPU that is only described may have no row here that serves it; its tensors are then counted by the CPU's row of that family.
const attention::Variant& variant_of(const Recipe& r, Context& ctx) {
  attention::Problem p = problem_of(r);
  if (!ctx.dry() || ctx.device.kind == DeviceKind::cpu) return attention::choose(p, ctx.device, r.attention);
  try {
    return attention::choose(p, ctx.device, r.attention);
  } catch (const Error&) {
    Device cpu;
    p.precision.math = Math::exact;
    return attention::choose(p, cpu, r.attention);
  }
}

bool finite(const Tensor& t) {
  for (std::int64_t i = 0; i < t.count(); ++i)
    if (!std::isfinite(load_element(t.data, t.dtype, i))) return false;
  return true;
}

std::unique_ptr<ParamStore> store_of(const Recipe& r, Context& ctx) {
  if (r.ranks.count > 1) return std::make_unique<SharedStore>(r.model, r.precision.dtype, r.purpose, r.ranks, ctx);
  return std::make_unique<WholeStore>(r.model, r.precision.dtype, r.purpose, ctx);
}

const Recipe& checked(const Recipe& r) {
  check(r);
  return r;
}

}  // namespace

void check(const Recipe& r) {
  check(r.model);
  check(r.batch >= 1 && r.len >= 1, Code::bad_argument, "step: batch {} and len {} must be at least 1", r.batch, r.len);
  check(double(r.batch) * double(r.len) < 0x1p31, Code::bad_argument, "step: batch {} times len {} is past 2^31 tokens", r.batch, r.len);
  check(r.keep.size() == 1 || std::int64_t(r.keep.size()) == r.model.layers, Code::bad_argument,
        "step: {} keep levels for {} blocks; give one, or one for each", r.keep.size(), r.model.layers);
  check(size_of(r.precision.dtype) >= 2, Code::unsupported, "step: {} is not served; fp32, tf32, bf16 and fp16 are", name_of(r.precision));
  check(r.ranks.count >= 1 && r.ranks.count <= 1 << 20, Code::bad_argument, "step: {} ranks; 1 to {} are served", r.ranks.count, 1 << 20);
  check(r.loss_rows >= 0, Code::bad_argument, "step: loss_rows is {}, it must be at least 0", r.loss_rows);
}

Training::Training(const Recipe& recipe, Context& ctx)
    : recipe_(checked(recipe)),
      ctx_(ctx),
      variant_(variant_of(recipe_, ctx)),
      problem_(problem_of(recipe_)),
      owned_(store_of(recipe_, ctx)),
      store_(*owned_),
      head_{recipe_.model, recipe_.precision.dtype, recipe_.batch * recipe_.len, 0} {
  const auto rows = head_.rows;
  head_.chunk = recipe_.loss_rows > 0 ? std::min(recipe_.loss_rows, rows) : chunk_of(recipe_.model, ctx.device, rows);
  {
    auto phase = ctx.arena.in_phase(Phase::input);
    tokens_ = ctx.arena.make("tokens", DType::i32, {rows});
    targets_ = ctx.arena.make("targets", DType::i32, {rows});
    rope_table_ = ctx.arena.make("rope.table", DType::f32, {recipe_.len, recipe_.model.head_dim});
    losses_ = ctx.arena.make("losses", DType::f32, {rows});
    loss_ = ctx.arena.make("loss", DType::f64, {1});
  }
  auto phase = ctx.arena.in_phase(Phase::optimizer);
  state_ = ctx.arena.make("adamw.state", DType::f64, {adamw::state_size});
  rope::fill(rope_table_, recipe_.model.rope_theta, ctx);
  adamw::start(state_, recipe_.precision.dtype == DType::f16 ? 0x1p16 : 1.0, ctx);
}

void Training::initialise(std::uint64_t seed) { store().initialise(seed, ctx_); }

bool Training::stands_in() const {
  return !variant_.supports(problem_, ctx_.device, attention::Pass::forward) ||
         !variant_.supports(problem_, ctx_.device, attention::Pass::backward);
}

Tensor Training::stream(Name name) const { return ctx_.arena.make(name, recipe_.precision.dtype, {head_.rows, recipe_.model.width}); }

Block Training::block(int i) const {
  return {{recipe_.model, variant_, problem_, rope_table_, i}, {recipe_.model, recipe_.precision.dtype, head_.rows, i}};
}

void Training::forward_blocks(const Tensor& x, const std::function<bool(int)>& after) {
  const int layers = int(recipe_.model.layers);
  {
    const auto w = store_.lease(0);
    const auto here = ctx_.inside("embedding");
    embedding::forward(w[Role::embedding].w, tokens_, x, ctx_);
  }
  if (after && !after(-1)) return;
  for (int i = 0; i < layers; ++i) {
    const auto w = store_.lease(1 + i);
    store_.prefetch(2 + i);
    block(i).forward(x, w, {}, x, ctx_);
    if (after && !after(i)) return;
  }
}

void Training::forward() {
  auto scope = ctx_.arena.scope();
  auto phase = ctx_.arena.in_phase(Phase::forward);
  const Tensor x = stream("x");
  forward_blocks(x);
  head_.loss(x, store_.lease(int(recipe_.model.layers) + 1), {targets_, losses_}, ctx_);
  const auto here = ctx_.inside("head");
  cross_entropy::add_up(losses_, 1.0 / double(head_.rows), false, loss_, ctx_);
}

void Training::backward(int micro, int of) {
  check(recipe_.purpose != Purpose::forward, Code::bad_argument, "step: this model was made for forward passes; it holds no gradients");
  const Gradient into_dw = micro == 0 ? Gradient::overwrite : Gradient::accumulate;
  auto scope = ctx_.arena.scope();
  auto phase = ctx_.arena.in_phase(Phase::backward);
  const Tensor d = stream("d");  // the residual stream's gradient; under everything, because an arena is a stack
  const Head::Targets targets{targets_, losses_, ctx_.dry() ? nullptr : state_.as<double>() + adamw::loss_scale, 1.0 / of};
  {
    auto saved = ctx_.arena.in_phase(Phase::saved);
    const Tensor x = stream("x");
    {
      auto forward = ctx_.arena.in_phase(Phase::forward);
      const auto w = store_.lease(0);
      const auto here = ctx_.inside("embedding");
      embedding::forward(w[Role::embedding].w, tokens_, x, ctx_);
    }
    descend(0, x, d, targets, into_dw);
  }
  {
    const auto here = ctx_.inside("embedding");
    const auto w = store_.lease(0);
    embedding::backward(tokens_, d, w[Role::embedding].dw, recipe_.model.tied ? Gradient::accumulate : into_dw, ctx_);
  }
  const auto here = ctx_.inside("head");
  cross_entropy::add_up(losses_, 1.0 / double(head_.rows) / of, micro > 0, loss_, ctx_);
}

// Forward on the way down, backward on the way up: what a block keeps is given back the moment its own backward is done.
void Training::descend(int i, const Tensor& x, const Tensor& d, const Head::Targets& targets, Gradient into_dw) {
  const int layers = int(recipe_.model.layers);
  if (i == layers) {
    auto phase = ctx_.arena.in_phase(Phase::backward);
    return head_.loss_and_gradient(x, store_.lease(layers + 1), targets, d, into_dw, ctx_);
  }
  auto scope = ctx_.arena.scope();
  const Block b = block(i);
  const Tensor y = stream({"y", i});
  const BlockSaved kept = b.make_kept(recipe_.keep[recipe_.keep.size() == 1 ? 0 : std::size_t(i)], ctx_);
  {
    auto phase = ctx_.arena.in_phase(Phase::forward);
    const auto w = store_.lease(1 + i);
    store_.prefetch(2 + i);
    b.forward(x, w, kept, y, ctx_);
  }
  descend(i + 1, y, d, targets, into_dw);
  auto phase = ctx_.arena.in_phase(Phase::backward);
  const auto w = store_.lease(1 + i);
  store_.prefetch(i);
  b.backward(x, w, kept, d, into_dw, ctx_);
}

void Training::update(const adamw::Hyper& hyper) {
  check(recipe_.purpose == Purpose::training, Code::bad_argument, "step: this model was made without an optimiser");
  adamw::set_rate(state_, hyper.lr, ctx_);
  store_.update(hyper, state_, ctx_);
}

void Training::logits_at(std::int64_t row, const Tensor& out) {
  auto scope = ctx_.arena.scope();
  auto phase = ctx_.arena.in_phase(Phase::forward);
  const Tensor x = stream("x");
  forward_blocks(x);
  head_.logits(x, store_.lease(int(recipe_.model.layers) + 1), row, out, ctx_);
}

std::string Training::first_gradient_not_finite() const {
  const auto& params = static_cast<const WholeStore&>(store_).params();
  for (auto p = params.rbegin(); p != params.rend(); ++p)
    if (p->grad && !finite(p->grad)) return fmt::format("the weight {}", p->spec.full_name());
  return "none of them: their squares' sum overflows";
}

std::string Training::first_not_finite() {
  for (const Param& p : store().params())
    if (!finite(p.master)) return fmt::format("the weight {}", p.spec.full_name());
  auto scope = ctx_.arena.scope();
  const Tensor x = stream("x");
  std::string found;
  forward_blocks(x, [&](int i) {
    if (!finite(x)) found = i < 0 ? "the embedding's output" : fmt::format("block {}", i);
    return found.empty();
  });
  return !found.empty() ? found : "the head";
}

}  // namespace headroom::engine
