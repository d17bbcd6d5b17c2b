#include "engine/pass/training.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/convert.h"
#include "base/random.h"
#include "dist/dry.h"
#include "engine/exchange/agree.h"
#include "engine/store/transfer.h"
#include "gpu/blas.h"
#include "ops/attention/choose_dry.h"
#include "ops/bias/bias.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/fill/fill.h"
#include "ops/matmul/matmul.h"
#include "ops/rope/rope.h"

namespace headroom::engine {

namespace {

// What a rank computes of a layer at a time. With tokens split that is a stripe of queries, and no stripe sees more keys than the last one.
attention::Problem asked_of(const SelfAttention& a, const Recipe& r) {
  const std::int64_t queries = r.ranks.split_tokens ? r.len / (2 * r.ranks.count) : r.len;
  return problem_of(a, r.batch, queries, r.len, r.formats().stored);
}

bool same_kernel(const SelfAttention& a, const SelfAttention& b) {  // layers of one decoder: everything else is asked alike
  return a.heads == b.heads && a.kv_heads == b.kv_heads && a.head_dim == b.head_dim && a.value_dim == b.value_dim && a.window == b.window &&
         a.scale == b.scale && a.softcap == b.softcap;
}

const attention::Variant& variant_of(const attention::Problem& p, const Recipe& r, Context& ctx) {
  return ctx.dry() ? attention::choose_dry(p, ctx.device, r.attention) : attention::choose(p, ctx.device, r.attention);
}

bool finite(const Tensor& t, const Context& ctx) {
  HostView view(ctx);
  const char* values = view.read(t);
  for (std::int64_t i = 0; i < t.count(); ++i)
    if (!std::isfinite(load_element(values, t.dtype, i))) return false;
  return true;
}

// A forecast needs no communication: ranks are symmetric, so one is simulated.
std::unique_ptr<dist::Comm> comm_of(const Recipe& r, Context& ctx, const dist::Comm* given) {
  if (r.ranks.count == 1 || given) return nullptr;
  check(ctx.dry(), Code::bad_argument, "step: {} ranks take a step together, and this one was given no way to speak to the others",
        r.ranks.count);
  const Walk* walk = ctx.walk;
  return std::make_unique<dist::DryComm>(0, r.ranks.count, ctx.device.ceilings.link_bytes_per_s,
                                         [walk] { return walk ? walk->steps.size() : 0; });
}

const Recipe& checked(const Recipe& r, const Context& ctx) {
  if (!ctx.dry()) check_trained(r.model);
  check(r);
  check(r.keep.found(), Code::bad_argument, "step: what blocks keep (auto) is to be found before a step is made");
  check_fp8(r, ctx.device);
  return r;
}

}  // namespace

Training::~Training() = default;

Training::Training(const Recipe& recipe, Context& ctx, dist::Comm* comm)
    : recipe_(checked(recipe, ctx)),
      ctx_(ctx),
      owned_comm_(comm_of(recipe_, ctx, comm)),
      comm_(recipe_.ranks.count == 1 ? nullptr
            : comm                   ? comm
                                     : owned_comm_.get()),
      store_(recipe_.model, {stored_type(), recipe_.purpose, recipe_.holding, recipe_.ranks, recipe_.micro_batches}, ctx, comm_),
      products_{.formats = recipe_.formats(), .watched = recipe_.watched},
      head_{.decoder = recipe_.model,
            .precision = products_.formats.stored,
            .rows = recipe_.rows_of_rank(),
            .logits_type = type_of(recipe_.logits, stored_type())},
      feed_(recipe_, head_.rows, ctx) {
  const auto rows = head_.rows;
  kept_.resize(recipe_.model.layers.size());
  head_.chunk = recipe_.loss_rows > 0 ? std::min(recipe_.loss_rows, rows)
                                      : chunk_of(recipe_.model, stored_type(), head_.logits_type, ctx.device, rows);
  {
    auto phase = ctx.arena.in_phase(Phase::input);
    make_attention();
    losses_ = ctx.arena.make("losses", DType::f32, {rows});
    loss_ = ctx.arena.make("loss", DType::f64, {recipe_.ranks.batches(), recipe_.micro_batches});
    if (products_.formats.quantised())
      products_.counts = ctx.arena.make("fp8.counts", DType::i64, {recipe_.model.depth(), quantised_count, quantise::count_size});
  }
  auto phase = ctx.arena.in_phase(Phase::optimizer);
  state_ = Optimizer::make_scalars(ctx);
  Optimizer::start(state_, recipe_.scales_loss() ? 0x1p16 : 1.0, ctx);
  if (recipe_.host() > 0 && recipe_.purpose != Purpose::forward) make_host_keep(comm);
  if (comm_ && !ctx.dry()) agree(recipe_, ctx, *comm_);
}

// A dry run makes what each block keeps, for its bytes.
void Training::make_host_keep(dist::Comm* of_forecast) {
  const std::vector<int> blocks = recipe_.blocks_on_host();
  std::vector<std::size_t> bytes;
  for (const int i : blocks) {
    Arena arena;
    Context dry{arena, ctx_.device};
    dry.dry_workers = ctx_.workers();
    (void)block(i).make_kept(keep_of(i), dry);
    bytes.push_back(arena.used());
  }
  auto lane = ctx_.dry()      ? of_forecast ? of_forecast->make_lane(HostKeep::rooms) : std::make_unique<dist::Lane>()
                   : ctx_.on_gpu() ? dist::lane_of_gpu(ctx_.device.index, HostKeep::rooms)
                              : std::make_unique<dist::Lane>();
  host_keep_ = std::make_unique<HostKeep>(blocks, std::move(bytes), ctx_, std::move(lane), ctx_.device.ceilings.host_bytes_per_s);
}

// Gives each layer a kernel for what it is asked, and a table for each way that layers' positions turn.
void Training::make_attention() {
  const std::int64_t len = recipe_.len / recipe_.ranks.parts();
  std::vector<std::pair<const SelfAttention*, Tensor>> tables;
  for (const DecoderLayer& layer : recipe_.model.layers) {
    const SelfAttention& a = layer.attention;
    LayerAttention of{.asked = recipe_.documents.of(asked_of(a, recipe_)),
                      .problem = recipe_.documents.of(problem_of(a, recipe_.batch, len, len, recipe_.formats().stored))};
    for (std::size_t i = 0; i < attention_.size() && !of.variant; ++i)
      if (same_kernel(recipe_.model.layers[i].attention, a)) of.variant = attention_[i].variant, of.split = attention_[i].split;
    if (!of.variant) {
      of.variant = &variant_of(of.asked, recipe_, ctx_);
      if (recipe_.ranks.split_tokens) {
        const auto whole = problem_of(a, recipe_.batch, recipe_.len, recipe_.len, recipe_.formats().stored);
        of.split = std::make_shared<const TokenSplit>(*of.variant, whole, *comm_, ctx_);
      }
    }
    attention_.push_back(of);
    if (recipe_.model.positions > 0) continue;
    auto same = std::find_if(tables.begin(), tables.end(), [&](const auto& t) { return t.first->turned == a.turned; });
    if (same == tables.end()) {
      const Name name{"rope.table", tables.empty() ? -1 : int(attention_.size()) - 1};
      same = tables.insert(tables.end(), {&a, make_rope_table(a, name)});
    }
    attention_.back().rope_table = same->second;
  }
}

// Its rows are this rank's tokens.
Tensor Training::make_rope_table(const SelfAttention& a, Name name) {
  const std::int64_t dim = a.turned_dim(), rows = recipe_.len / recipe_.ranks.parts();
  const Tensor table = ctx_.arena.make(name, DType::f32, {rows, dim});
  const bool scaled = a.turned.scaling != rope::Scaling::none;
  if (ctx_.dry()) return table;
  const auto whole = scaled ? rope::table_of(rope::frequencies(a.turned, dim, recipe_.len), recipe_.len) : std::vector<float>();
  const int stripes = split() ? 2 : 1;
  for (int which = 0; which < stripes; ++which) {
    const Tensor of = matmul::part(table, 0, which * rows / stripes, (which + 1) * rows / stripes);
    const std::int64_t first = split() ? split()->first_token(which) : 0;
    if (scaled)
      write(whole.data() + first * dim, of, ctx_);
    else
      rope::fill(of, a.turned.theta, ctx_, first);
  }
  return table;
}

void Training::initialise(std::uint64_t seed) {
  store_.initialise(seed);
  Optimizer::set_seed(state_, seed, ctx_);
}

void Training::warm() {
  if (!ctx_.on_gpu()) return;
  const blas::Measuring measuring;
  std::vector<std::int32_t> tokens(std::size_t(recipe_.batch * recipe_.len));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = std::int32_t(Random{1}.below(i, std::uint64_t(recipe_.model.vocab)));
  for (int micro = 0; micro < recipe_.micro_batches; ++micro) feed(micro, tokens, tokens);
  if (recipe_.purpose == Purpose::forward) return forward();
  const bool by_products = recipe_.purpose == Purpose::training && recipe_.holding.gradients == Gradients::none;  // then only below
  for (int micro = 0; micro < (by_products ? 0 : recipe_.micro_batches); ++micro) backward(micro);
  if (recipe_.purpose == Purpose::gradients) return;
  const auto state = values_of<double>(state_, ctx_);
  if (recipe_.holding.updating == Updating::during) {
    in_parts(recipe_.hyper(), true);
    return write(state.data(), state_, ctx_);
  }
  const float not_finite = std::numeric_limits<float>::quiet_NaN();
  write(&not_finite, store_.first_gradient(), ctx_);  // an update with it changes no weight
  apply({});
  write(state.data(), state_, ctx_);
}

std::vector<double> Training::losses() const {
  const auto each = values_of<double>(loss_, ctx_);
  std::vector<double> all;
  for (int micro = 0; micro < losses_made_; ++micro)
    for (int rank = 0; rank < recipe_.ranks.batches(); ++rank) all.push_back(each[std::size_t(rank * recipe_.micro_batches + micro)]);
  return all;
}

double Training::loss() const {
  double sum = 0;
  for (const double x : losses()) sum += x;
  return sum / loss_share_;
}

Tensor Training::loss_of(int micro) const {
  return {loss_.as<double>() + recipe_.batch_of(rank()) * recipe_.micro_batches + micro, DType::f64, {1}};
}

// Adds up the losses of a micro-batch's tokens, in their order. Ranks that split them all have the sum.
void Training::add_losses(int micro, double scale) {
  if (recipe_.documents) return cross_entropy::add_up(losses_, 1, false, loss_of(micro), ctx_, feed_.predicted(micro_));
  if (!split()) return cross_entropy::add_up(losses_, scale, false, loss_of(micro), ctx_);
  auto scope = ctx_.arena.scope();
  const Tensor all = ctx_.arena.make("losses in order", DType::f32, {recipe_.batch * recipe_.len});
  split()->gather_losses(losses_, all, ctx_);
  cross_entropy::add_up(all, scale, false, loss_of(micro), ctx_);
}

// Brings every rank's losses of `micros` micro-batches to every rank.
void Training::gather_losses() {
  if (!comm_ || split()) return;
  const double bytes = double(loss_.bytes());
  const auto op = ctx_.note("losses", {DType::f64}, {0, 2 * bytes, sent_bytes(dist::Call::gather, bytes, comm_->ranks())});
  comm_->carries("losses");
  comm_->gather(Tensor(loss_of(0).data, DType::f64, {recipe_.micro_batches}), loss_, ctx_.stream);
}

double Training::state(Optimizer::Field f) const { return values_of<double>(state_, ctx_)[f]; }

Tensor Training::stream(Name name) const { return ctx_.arena.make(name, stored_type(), {head_.rows, recipe_.model.width}); }

DecoderBlock Training::block(int i) const {
  const LayerAttention& a = attention_[std::size_t(i)];
  const DecoderLayer& layer = recipe_.model.layers[std::size_t(i)];
  const InBlock here{recipe_.model, products_, head_.rows, i};
  return block_of(
      {here, layer.attention, *a.variant, a.problem, a.rope_table, a.split.get(), feed_.documents(micro_), feed_.positions(micro_)},
      layer.ffn);
}

void Training::begin_counts() {
  const Tensor& c = products_.counts;
  if (c) fill::constant(Tensor(c.data, DType::f32, {2 * c.count()}), 0, ctx_);  // a zero has the same bits in every type
}

std::vector<QuantisedCount> Training::quantised() const {
  std::vector<QuantisedCount> all;
  if (!products_.counts) return all;
  const auto n = values_of<std::int64_t>(products_.counts, ctx_);
  for (int layer = 0; layer < int(recipe_.model.depth()); ++layer)
    for (int which = 0; which < quantised_count; ++which) {
      const auto* at = n.data() + (layer * quantised_count + which) * quantise::count_size;
      all.push_back({layer, Quantised(which), at[quantise::numbers], at[quantise::clipped], at[quantise::flushed], at[quantise::nan]});
    }
  return all;
}

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
    const auto w = store_.lease(0, Pass::forward);
    store_.prefetch(1, Pass::forward);
    embed(w, 0, x);
  }
  if (after && !after(-1)) return;
  for (int i = 0; i < layers; ++i) {
    const auto w = store_.lease(group_of_layer(i), Pass::forward);
    store_.prefetch(group_of_layer(i) + 1, Pass::forward);
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
      const auto w = store_.lease(0, Pass::forward);
      store_.prefetch(1, Pass::forward);
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
    const auto w = store_.lease(group_of_layer(i), Pass::forward);
    store_.prefetch(group_of_layer(i) + 1, Pass::forward);
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
    const auto w = store_.lease(group_of_layer(i), Pass::forward);
    store_.prefetch(group_of_layer(i) + 1, Pass::forward);
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
  const int group = group_of_layer(i);
  const auto w = store_.lease(group, Pass::forward);
  store_.prefetch(group + 1, Pass::forward);
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

void Training::update(const Optimizer::Hyper& hyper) {
  set_rate(hyper.lr);
  apply(hyper);
}

void Training::set_rate(double lr) { Optimizer::set_rate(state_, lr, ctx_); }

void Training::apply(const Optimizer::Hyper& hyper) {
  check(recipe_.purpose == Purpose::training && recipe_.holding.updating == Updating::after, Code::bad_argument,
        "step: this model was made {}", recipe_.purpose == Purpose::training ? "to be updated during backward" : "without an optimiser");
  auto scope = ctx_.arena.scope();
  store_.step(store_.norm(hyper, state_));
}

// One micro-batch whose groups are updated on the way. idle: with numbers that change nothing.
void Training::in_parts(const Optimizer::Hyper& hyper, bool idle) {
  auto scope = ctx_.arena.scope();
  {
    auto phase = ctx_.arena.in_phase(Phase::optimizer);
    const Tensor numbers = Optimizer::begin(state_, hyper, ctx_);
    if (idle) fill::constant(numbers, 0, ctx_);
    store_.update_with(numbers);
  }
  backward(0);
  store_.update_with({});
}

void Training::passes(const Optimizer::Hyper& hyper) {
  if (recipe_.holding.updating == Updating::during) return in_parts(hyper, false);
  for (int micro = 0; micro < recipe_.micro_batches; ++micro) backward(micro);
  apply(hyper);
}

void Training::step(const Optimizer::Hyper& hyper) {
  set_rate(hyper.lr);
  passes(hyper);
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

std::string Training::first_gradient_not_finite() const {
  const auto& params = store_.params();
  for (auto p = params.rbegin(); p != params.rend(); ++p)
    if (p->grad && !finite(p->grad, ctx_)) return fmt::format("the weight {}", p->spec.full_name());
  return "none of them: their squares' sum overflows";
}

std::string Training::first_not_finite() {
  for (const Param& p : store_.params())
    if (!finite(p.master ? p.master : p.copy, ctx_)) return fmt::format("the weight {}", p.spec.full_name());
  auto scope = ctx_.arena.scope();
  const Tensor x = stream("x");
  std::string found;
  micro_ = 0;
  store_.begin(0);
  forward_blocks(x, [&](int i) {
    if (found.empty() && !finite(x, ctx_)) found = i < 0 ? "the embedding's output" : fmt::format("block {}", i);
    return found.empty() || comm_;  // other ranks may find it elsewhere, and all make the same calls
  });
  store_.end();
  return !found.empty() ? found : "the head";
}

}  // namespace headroom::engine
