#include "engine/pass/training.h"

#include <algorithm>
#include <limits>

#include "base/element.h"
#include "base/random.h"
#include "dist/dry.h"
#include "engine/exchange/agree.h"
#include "engine/store/transfer.h"
#include "gpu/blas.h"
#include "ops/attention/choose_dry.h"
#include "ops/cross_entropy/cross_entropy.h"
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
      store_(recipe_.model,
             {.compute = stored_type(),
              .purpose = recipe_.purpose,
              .holding = recipe_.holding,
              .ranks = recipe_.ranks,
              .micro_batches = recipe_.micro_batches,
              .multiplied_in = recipe_.formats().weight},
             ctx, comm_),
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
    store_.count_copies([&](const ParamSpec& s) { return products_.counts_of(quantised_weight(s.role), s.layer); });
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
  return {element_of(loss_, recipe_.batch_of(rank()) * recipe_.micro_batches + micro), DType::f64, {1}};
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
    const bool in_products = recipe_.holding.gradients == Gradients::none;
    const Tensor numbers = in_products ? Optimizer::begin_in_products(state_, hyper, ctx_) : Optimizer::begin(state_, hyper, ctx_);
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

}  // namespace headroom::engine
