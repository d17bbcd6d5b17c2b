// A step of a decoder that is only counted: Training's passes (engine/training.cpp) over its layers.
#include <algorithm>

#include "base/divide.h"
#include "engine/alike.h"
#include "engine/counted.h"
#include "engine/counted/passes.h"
#include "ops/bias/bias.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"

namespace headroom::engine {

struct CountedTraining::Run {
  const Recipe r;
  const Decoder& d = r.model;
  Context& ctx;
  dist::Comm* comm;
  ParamStore store;
  counted::Passes pass;
  Tensor losses, loss, state, tokens;
  Tensor numbers{};  // of an update that happens during backward

  Run(const Recipe& recipe, Context& c, dist::Comm* given)
      : r(recipe),
        ctx(c),
        comm(recipe.ranks.count > 1 ? given : nullptr),
        store(r.model, {r.precision.dtype, r.purpose, r.holding, r.ranks, r.micro_batches}, c, comm),
        pass{d, r.batch, r.len, r.len, r.precision, r.attention, c} {
    const std::int64_t rows = pass.rows();
    {
      auto phase = ctx.arena.in_phase(Phase::input);
      tokens = ctx.arena.make("tokens", DType::i32, {r.micro_batches, rows});
      (void)ctx.arena.make("targets", DType::i32, {r.micro_batches, rows});
      make_rope_tables();
      losses = ctx.arena.make("losses", DType::f32, {rows});
      loss = ctx.arena.make("loss", DType::f64, {r.ranks.count, r.micro_batches});
    }
    auto phase = ctx.arena.in_phase(Phase::optimizer);
    state = Optimizer::make_scalars(ctx);
  }

  void make_rope_tables() {
    std::vector<const SelfAttention*> ways;
    for (const DecoderLayer& l : d.layers) {
      const auto same = [&](const SelfAttention* w) { return w->turned == l.attention.turned; };
      if (d.positions > 0 || std::any_of(ways.begin(), ways.end(), same)) continue;
      ways.push_back(&l.attention);
      (void)ctx.arena.make("rope.table", DType::f32, {r.len, l.attention.turned_dim()});
    }
  }
  int layers() const { return int(d.layers.size()); }
  int last() const { return group_of_layer(layers()); }
  Tensor stream(Name name) { return ctx.arena.make(name, pass.type(), {pass.rows(), d.width}); }
  Keep keep(int i) const { return r.keep.of(i); }

  void embed(const Tensor& x) {
    (void)store.lease(0, Pass::forward);
    store.prefetch(1, Pass::forward);
    const auto here = ctx.inside("embedding");
    embedding::forward(counted::view(d.tied ? pass.type() : DType::f32, {d.vocab, d.width}), counted::view(DType::i32, {pass.rows()}), x,
                       ctx);
    if (d.positions > 0)
      bias::add(counted::view(pass.type(), {r.batch, r.len * d.width}), counted::view(DType::f32, {r.len * d.width}), ctx);
  }

  void head(bool backward) {
    (void)store.lease(last(), backward ? Pass::backward : Pass::forward);
    const auto here = ctx.inside("head");
    auto scope = ctx.arena.scope();
    const std::int64_t rows = pass.rows();
    const DType logits_type = type_of(r.logits, pass.type());
    const std::int64_t chunk =
        r.loss_rows > 0 ? std::min(r.loss_rows, rows) : chunk_of(r.model, pass.type(), logits_type, ctx.device, rows);
    const Tensor n = ctx.arena.make("final_norm.y", pass.type(), {rows, d.width});
    (void)ctx.arena.make("final_norm.rstd", DType::f32, {rows});
    if (d.layer_norm) (void)ctx.arena.make("final_norm.mean", DType::f32, {rows});
    pass.stream_norm();
    {
      auto chunks = ctx.arena.scope();
      const Tensor logits = ctx.arena.make("logits", logits_type, {chunk, d.vocab}), table = counted::view(pass.type(), {d.vocab, d.width});
      const std::int64_t alike = alike_of(ceil_div(rows, chunk), ctx);
      for (std::int64_t row = 0; row < rows; row += chunk) {
        const auto end = std::min(rows, row + chunk);
        const std::size_t from = walked(ctx);
        const Tensor part_n = matmul::part(n, 0, row, end), part_logits = matmul::part(logits, 0, 0, end - row);
        matmul::multiply({part_n, matmul::transposed(table), part_logits, 1, 0, r.precision.math}, ctx, "head");
        const Tensor dlogits = backward ? cross_entropy::gradient_inside(part_logits, pass.type()) : Tensor();
        cross_entropy::run({part_logits, counted::view(DType::i32, {end - row}), matmul::part(losses, 0, row, end), dlogits, 1, nullptr,
                            float(d.logit_softcap)},
                           ctx);
        if (backward) {
          const Tensor dw = counted::view(DType::f32, {d.vocab, d.width});
          matmul::multiply({matmul::transposed(dlogits), part_n, dw, 1, row == 0 ? 0.0f : 1.0f, r.precision.math}, ctx, "head.dw",
                           Making::gradients);
          matmul::multiply({dlogits, table, part_n, 1, 0, r.precision.math}, ctx, "head.dx", Making::gradients);
        }
        if (row == chunk && alike > 0) {
          repeat_since(from, 1 + alike, ctx);
          row += alike * chunk;
        }
      }
    }
    if (backward) pass.stream_norm_backward(Gradient::overwrite);
  }

  void layer_forward(int i, Keep kept) {  // where it keeps anything, that has been made
    const DecoderLayer& l = d.layers[std::size_t(i)];
    (void)store.lease(group_of_layer(i), Pass::forward);
    store.prefetch(group_of_layer(i) + 1, Pass::forward);
    auto scope = ctx.arena.scope();
    if (kept == Keep::input) (void)stream({"h", i});
    {
      auto half = ctx.arena.scope();
      pass.make_items(attention_items(pass, l.attention), kept, false, i);
      attention_forward(pass, l.attention, i, {kept, true, true});
    }
    auto half = ctx.arena.scope();
    pass.make_items(ffn_items(pass, l.ffn), kept, false, i);
    ffn_forward(pass, l.ffn, i, {kept, true, true});
  }

  void layer_backward(int i, Keep kept) {
    const DecoderLayer& l = d.layers[std::size_t(i)];
    const auto attention = attention_items(pass, l.attention), ffn = ffn_items(pass, l.ffn);
    (void)store.lease(group_of_layer(i), Pass::backward);
    if (i % r.group() > 0 || r.group() == 1) store.prefetch(group_of_layer(i) - 1, Pass::backward);
    counted::WeightGradients g{pass, r, numbers};
    auto scope = ctx.arena.scope();
    if (kept == Keep::input) {
      (void)stream({"h", i});
      pass.make_items(attention, kept, false, i);
      attention_forward(pass, l.attention, i, {kept, false, true});
    }
    {
      auto half = ctx.arena.scope();
      pass.make_items(ffn, kept, false, i);
      ffn_forward(pass, l.ffn, i, {kept, false, false});
      ffn_backward(pass, l.ffn, i, kept, g);
    }
    if (kept != Keep::input) {
      pass.make_items(attention, kept, false, i);
      attention_forward(pass, l.attention, i, {kept, false, false});
    }
    attention_backward(pass, l.attention, i, g);
  }

  void descend(int i) {
    if (i == layers()) {
      auto phase = ctx.arena.in_phase(Phase::backward);
      head(true);
      return store.finish(last());
    }
    auto scope = ctx.arena.scope();
    const int end = std::min(i + r.group(), layers());
    (void)stream({"y", end - 1});
    if (r.group() == 1) {
      auto saved = ctx.arena.in_phase(Phase::saved);
      make_kept(i);
    }
    {
      auto phase = ctx.arena.in_phase(Phase::forward);
      for (int b = i; b < end; ++b) layer_forward(b, r.group() > 1 ? Keep::input : keep(b));
    }
    descend(end);
    auto phase = ctx.arena.in_phase(Phase::backward);
    if (r.group() > 1) return backward_group(i, end);
    layer_backward(i, keep(i));
    store.finish(group_of_layer(i));
  }

  void make_kept(int i) {
    const DecoderLayer& l = d.layers[std::size_t(i)];
    pass.make_items(attention_items(pass, l.attention), keep(i), true, i);
    if (keep(i) != Keep::input) (void)stream({"h", i});
    pass.make_items(ffn_items(pass, l.ffn), keep(i), true, i);
  }

  void backward_group(int i, int end) {
    const bool last_one = i + 1 == end;
    auto scope = ctx.arena.scope();
    if (!last_one) {
      (void)stream({"y", i});
      make_kept(i);
      layer_forward(i, keep(i));
      backward_group(i + 1, end);
    }
    layer_backward(i, last_one ? Keep::input : keep(i));
    store.finish(group_of_layer(i));
  }

  void gather_losses() {
    if (!comm) return;
    const double bytes = double(loss.bytes());
    const auto op = ctx.note("losses", {DType::f64}, {0, 2 * bytes, sent_bytes(dist::Call::gather, bytes, comm->ranks())});
    comm->carries("losses");
    comm->gather(Tensor(loss.data, DType::f64, {r.micro_batches}), loss, ctx.stream);
  }

  void forward() {
    auto scope = ctx.arena.scope();
    auto phase = ctx.arena.in_phase(Phase::forward);
    store.begin(0);
    embed(stream("x"));
    for (int i = 0; i < layers(); ++i) layer_forward(i, Keep::input);
    head(false);
    store.end();
    cross_entropy::add_up(losses, 1, false, Tensor(loss.data, DType::f64, {1}), ctx);
    gather_losses();
  }

  void backward(int micro) {
    store.begin(micro);
    auto scope = ctx.arena.scope();
    auto phase = ctx.arena.in_phase(Phase::backward);
    (void)stream("d");
    {
      auto saved = ctx.arena.in_phase(Phase::saved);
      const Tensor x = stream("x");
      {
        auto in_forward = ctx.arena.in_phase(Phase::forward);
        embed(x);
      }
      descend(0);
    }
    {
      const auto here = ctx.inside("embedding");
      (void)store.lease(0, Pass::backward);
      embedding::backward(counted::view(DType::i32, {pass.rows()}), counted::view(pass.type(), {pass.rows(), d.width}),
                          counted::view(DType::f32, {d.vocab, d.width}), d.tied ? Gradient::accumulate : Gradient::overwrite, ctx);
      if (d.positions > 0)
        bias::backward(counted::view(pass.type(), {r.batch, r.len * d.width}), counted::view(DType::f32, {r.len * d.width}),
                       Gradient::overwrite, ctx);
    }
    store.finish(0);
    cross_entropy::add_up(losses, 1, false, Tensor(loss.data, DType::f64, {1}), ctx);
    if (micro + 1 < r.micro_batches) return;
    store.end();
    gather_losses();
  }
};

CountedTraining::CountedTraining(const Recipe& r, Context& ctx, dist::Comm* comm) {
  check(ctx.dry(), Code::unsupported, "model {}: it is counted, not run", r.model.name);
  check(r);
  check(r.keep.found(), Code::bad_argument, "step: what blocks keep (auto) is to be found before a step is made");
  run_ = std::make_unique<Run>(r, ctx, comm);
}
CountedTraining::~CountedTraining() = default;

void CountedTraining::forward() { run_->forward(); }
void CountedTraining::backward(int micro) { run_->backward(micro); }

void CountedTraining::update(const adamw::Hyper& hyper) {
  Context& ctx = run_->ctx;
  adamw::set_rate(run_->state, hyper.lr, ctx);
  auto scope = ctx.arena.scope();
  run_->store.step(run_->store.norm(hyper, run_->state));
}

void CountedTraining::passes(const adamw::Hyper& hyper) {
  if (run_->r.holding.updating == Updating::during) {
    auto scope = run_->ctx.arena.scope();
    {
      auto phase = run_->ctx.arena.in_phase(Phase::optimizer);
      run_->numbers = Optimizer::begin(run_->state, hyper, run_->ctx);
      run_->store.update_with(run_->numbers);
    }
    backward(0);
    return run_->store.update_with({});
  }
  for (int micro = 0; micro < run_->r.micro_batches; ++micro) backward(micro);
  update(hyper);
}

}  // namespace headroom::engine
