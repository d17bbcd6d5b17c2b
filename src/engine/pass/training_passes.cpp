// Forward and backward of a training: embedding, blocks, head.
#include <algorithm>
#include <functional>

#include "engine/pass/training.h"
#include "ops/bias/bias.h"
#include "ops/embedding/embedding.h"
#include "ops/fill/fill.h"

namespace headroom::engine {

Norm Training::embedding_norm() const {
  return {recipe_.model,         WeightRole::embedding_norm, WeightRole::embedding_norm_bias,
          "embedding_norm.rstd", "embedding_norm.mean",      head_.rows};
}

// Learned positions are one row of len · width numbers that every sequence adds; where documents are packed, a row for each token.
void Training::embed(const ParamStore::Lease& w, int micro, const Tensor& stream_of) {
  const auto here = ctx_.inside("embedding");
  auto scope = ctx_.arena.scope();
  const bool normed = recipe_.model.embedding_norm;
  const Tensor x = embedded_.x ? embedded_.x : stream_of;
  embedding::forward(w[WeightRole::embedding].w, tokens(micro), x, ctx_, float(recipe_.model.embedding_scale));
  if (normed) embedding_norm().forward(x, w, stream_of, embedded_.x ? embedded_.stats : embedding_norm().make(ctx_), ctx_);
  if (recipe_.model.positions == 0) return;
  if (recipe_.documents) return embedding::add(w[WeightRole::positions].w, feed_.positions(micro_), x, ctx_);
  const std::int64_t each = recipe_.len * recipe_.model.width;
  bias::add(Tensor(x.data, x.dtype, {recipe_.batch, each}), Tensor(w[WeightRole::positions].w.data, DType::f32, {each}), ctx_);
}

void Training::embedding_gradients(int micro, const Tensor& d) {
  const auto here = ctx_.inside("embedding");
  const auto w = store_.lease(0, Pass::backward);
  const auto into = recipe_.model.tied ? Gradient::accumulate : Gradient::overwrite;  // the head's part of it is there
  if (embedded_.x) embedding_norm().backward(embedded_.x, w, embedded_.stats, d, d, Gradient::overwrite, Gradient::overwrite, ctx_);
  embedded_ = {};
  embedding::backward(tokens(micro), d, w[WeightRole::embedding].dw, into, ctx_, float(recipe_.model.embedding_scale));
  if (recipe_.model.positions == 0) return;
  if (recipe_.documents) return embedding::backward(feed_.positions(micro_), d, w[WeightRole::positions].dw, Gradient::overwrite, ctx_);
  const std::int64_t each = recipe_.len * recipe_.model.width, rest = (recipe_.model.positions - recipe_.len) * recipe_.model.width;
  auto* dw = w[WeightRole::positions].dw.as<float>();
  bias::backward(Tensor(d.data, d.dtype, {recipe_.batch, each}), Tensor(dw, DType::f32, {each}), Gradient::overwrite, ctx_);
  if (rest > 0 && !ctx_.dry()) fill::constant(Tensor(dw + each, DType::f32, {rest}), 0, ctx_);
}

void Training::forward_blocks(const Tensor& x, const std::function<bool(int)>& after) {
  const int layers = int(recipe_.model.depth());
  {
    const auto w = store_.lease_forward(0);
    embed(w, 0, x);
  }
  if (after && !after(-1)) return;
  for (int i = 0; i < layers; ++i) {
    const auto w = store_.lease_forward(group_of_layer(i));
    block(i).forward(x, w, {}, x, ctx_);
    if (after && !after(i)) return;
  }
}

void Training::forward() {
  auto scope = ctx_.arena.scope();
  auto phase = ctx_.arena.in_phase(Phase::forward);
  const Tensor x = stream("x");
  micro_ = 0;
  store_.begin(0);
  begin_counts();
  forward_blocks(x);
  head_.loss(x, store_.lease(last_group(recipe_.model), Pass::forward), {targets(), losses_}, ctx_);
  store_.end();
  const auto here = ctx_.inside("head");
  add_losses(0, 1.0 / double(recipe_.batch * recipe_.len));
  losses_made_ = 1;
  loss_share_ = recipe_.ranks.batches();
  gather_losses();
}

void Training::backward(int micro) {
  const int of = recipe_.micro_batches_of_all();
  check(recipe_.purpose != Purpose::forward, Code::bad_argument, "step: this model was made for forward passes; it holds no gradients");
  check(store_.updating() || recipe_.purpose != Purpose::training || recipe_.holding.gradients != Gradients::none, Code::bad_argument,
        "step: gradients that are never held are made by an update; call step or passes, not backward");
  micro_ = micro;
  store_.begin(micro);
  if (micro == 0) begin_counts();
  auto scope = ctx_.arena.scope();
  auto phase = ctx_.arena.in_phase(Phase::backward);
  const Tensor d = stream("d");  // the residual stream's gradient; under everything, because an arena is a stack
  const Head::Targets targets{this->targets(micro),
                              losses_,
                              ctx_.dry() ? nullptr : state_.as<double>() + Optimizer::loss_scale,
                              recipe_.documents ? 1.0 : 1.0 / of,
                              recipe_.ranks.parts(),
                              feed_.predicted(micro_)};
  {
    auto saved = ctx_.arena.in_phase(Phase::saved);
    if (host_keep_) host_keep_->begin();
    const Tensor x = stream("x");
    if (recipe_.model.embedding_norm) embedded_ = {stream("embedding.y"), embedding_norm().make(ctx_)};
    {
      auto forward = ctx_.arena.in_phase(Phase::forward);
      const auto w = store_.lease_forward(0);
      embed(w, micro, x);
    }
    descend(0, x, d, targets);
  }
  embedding_gradients(micro, d);
  store_.finish(0);
  const auto here = ctx_.inside("head");
  add_losses(micro, 1.0 / double(recipe_.batch * recipe_.len) / of);
  losses_made_ = micro + 1;
  loss_share_ = 1;
  if (micro + 1 < recipe_.micro_batches) return;
  store_.end();
  gather_losses();
}

// Forward on the way down, backward on the way up: what a block keeps is given back the moment its own backward is done.
void Training::descend(int i, const Tensor& x, const Tensor& d, const Head::Targets& targets) {
  const int group = group_of_layer(i);
  if (group == last_group(recipe_.model)) {
    auto phase = ctx_.arena.in_phase(Phase::backward);
    head_.loss_and_gradient(x, store_.lease(group, Pass::backward), targets, d, Gradient::overwrite, ctx_);
    return store_.finish(group);
  }
  auto scope = ctx_.arena.scope();
  const int end = std::min(i + recipe_.group(), int(recipe_.model.depth()));
  const Tensor y = stream({"y", end - 1});
  if (recipe_.group() > 1)
    forward_group(i, end, x, y);
  else
    keep_and_forward(i, x, y);
  descend(end, y, d, targets);
  auto phase = ctx_.arena.in_phase(Phase::backward);
  if (recipe_.group() > 1)
    backward_group(i, end, x, d);
  else
    backward_block(i, x, d);
}

// Blocks [begin, end), of which nothing is kept.
[[gnu::noinline]] void Training::forward_group(int begin, int end, const Tensor& x, const Tensor& y) {
  auto phase = ctx_.arena.in_phase(Phase::forward);
  for (int i = begin; i < end; ++i) {
    const auto w = store_.lease_forward(group_of_layer(i));
    block(i).forward(i == begin ? x : y, w, {}, y, ctx_);
  }
}

// The same blocks once more, now as their level says: in the phase of backward, for which alone they are made.
void Training::backward_group(int i, int end, const Tensor& x, const Tensor& d) {
  if (i + 1 == end) {
    kept_[std::size_t(i)] = {};
    return backward_block(i, x, d);
  }
  auto scope = ctx_.arena.scope();
  const Tensor y = stream({"y", i});
  const DecoderBlock b = block(i);
  kept_[std::size_t(i)] = b.make_kept(keep_of(i), ctx_);
  {
    const auto w = store_.lease_forward(group_of_layer(i));
    b.forward(x, w, kept_[std::size_t(i)], y, ctx_);
  }
  backward_group(i + 1, end, y, d);
  backward_block(i, x, d);
}

// Not part of descend's frame, which stands on the stack once for every block.
[[gnu::noinline]] void Training::keep_and_forward(int i, const Tensor& x, const Tensor& y) {
  const DecoderBlock b = block(i);
  BlockSaved& kept = kept_[std::size_t(i)];
  const bool on_host = host_keep_ && host_keep_->has(i);
  {
    auto saved = ctx_.arena.in_phase(Phase::saved);
    if (on_host) {
      Context room = host_keep_->take(i);
      kept = b.make_kept(keep_of(i), room);
    } else {
      kept = b.make_kept(keep_of(i), ctx_);
    }
  }
  auto phase = ctx_.arena.in_phase(Phase::forward);
  const auto w = store_.lease_forward(group_of_layer(i));
  b.forward(x, w, kept, y, ctx_);
  if (on_host) host_keep_->leave(i);
}

[[gnu::noinline]] void Training::backward_block(int i, const Tensor& x, const Tensor& d) {
  const int group = group_of_layer(i);
  const auto w = store_.lease(group, Pass::backward);
  if (i % recipe_.group() > 0 || recipe_.group() == 1)
    store_.prefetch(group - 1, Pass::backward);  // else a group's forward comes before it
  const bool on_host = host_keep_ && host_keep_->has(i);
  if (on_host) host_keep_->come_back(i);
  block(i).backward(x, w, kept_[std::size_t(i)], d, Gradient::overwrite, ctx_);
  if (on_host) host_keep_->done(i);
  store_.finish(group);
}

void Training::logits_at(std::int64_t row, const Tensor& out) {
  auto scope = ctx_.arena.scope();
  auto phase = ctx_.arena.in_phase(Phase::forward);
  const Tensor x = stream("x");
  micro_ = 0;
  store_.begin(0);
  forward_blocks(x);
  int owner = 0;
  std::int64_t mine = row;
  if (split()) {  // every rank makes a row, and the rank with the requested one sends it to the others
    const stripes::Stripes& s = split()->stripes();
    const auto at = s.by_rank(row / recipe_.len, row % recipe_.len);
    owner = int(at / s.rows_of_rank());
    mine = at % s.rows_of_rank();
  }
  head_.logits(x, store_.lease(last_group(recipe_.model), Pass::forward), mine, out, ctx_);
  store_.end();
  if (!split()) return;
  comm_->carries("logits");
  comm_->broadcast(out, owner, ctx_.stream);
}

}  // namespace headroom::engine
