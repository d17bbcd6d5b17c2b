#include "engine/store/store.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/interrupt.h"
#include "engine/store/runs.h"
#include "engine/store/transfer.h"
#include "ops/copy/copy.h"
#include "ops/copy/split.h"
#include "ops/fill/fill.h"
#include "ops/quantise/quantise.h"

namespace headroom::engine {

ParamStore::ParamStore(const Decoder& d, const Settings& settings, Context& ctx, dist::Comm* comm)
    : settings_(settings), optimizer_(settings.holding.moments), ctx_(ctx), comm_(comm), last_group_(last_group(d)), tied_(d.tied) {
  check(alone() || (comm && comm->ranks() == settings.ranks.count), Code::bad_argument, "store: {} ranks need a way to speak to each other",
        settings.ranks.count);
  if (settings_.purpose == Purpose::gradients && settings_.holding.gradients == Gradients::none)
    settings_.holding.gradients = Gradients::half;  // there is no update
  const auto table = param_table(d);
  params_.reserve(table.size());
  for (const ParamSpec& spec : table) params_.push_back({spec, 0, spec.shape.count(), {}, {}, {}, {}, {}});
  made_.resize(table.size());
  kept_.resize(table.size());
  for (std::size_t i = 0; i < table.size(); ++i)
    while (int(begin_of_.size()) <= table[i].group) begin_of_.push_back(int(i));
  begin_of_.resize(std::size_t(last_group_) + 2, int(table.size()));  // a tied head without a final norm is a group of no parameters
  for (Segment& s : segments_of(table)) static_cast<Segment&>(runs_.emplace_back()) = std::move(s);
  describe_runs();
  if (settings.answering) {
    make_answering();
  } else if (alone()) {
    make_alone();
  } else {
    lane_ = comm->make_lane(marks);
    make_shared();
  }
}

bool ParamStore::halves() const {
  return settings_.holding.masters == Masters::halves && settings_.compute == DType::bf16 && settings_.purpose == Purpose::training;
}

bool ParamStore::keeps_copies(const ParamSpec& s) const {
  return settings_.holding.copies == WeightCopies::kept && settings_.purpose == Purpose::training && alone() &&
         size_of(settings_.multiplied_in.dtype) == 1 && s.multiplied && s.layer >= 0;
}

// The head's gradient is summed over chunks of rows and a tied embedding's twice: those are FP32.
void ParamStore::describe_runs() {
  for (SegmentPart& r : runs_) {
    r.part = r.Segment::part(settings_.ranks.count);
    r.weight = r.multiplied ? settings_.compute : DType::f32;
    const bool of_block = r.multiplied && r.layer >= 0;
    r.partial = settings_.holding.gradients == Gradients::half && of_block ? settings_.compute : DType::f32;
    r.kept = settings_.micro_batches > 1 ? DType::f32 : r.partial;
  }
}

void ParamStore::make_alone() {
  const auto make_each = [&](Phase phase, DType type, Tensor Param::*which, const auto& wanted) {
    auto in = ctx_.arena.in_phase(phase);
    for (Param& p : params_)
      if (wanted(p.spec)) p.*which = ctx_.arena.make({p.spec.name, p.spec.layer}, type, p.spec.shape);
  };
  const auto multiplied = [](const ParamSpec& s) { return s.multiplied; };
  make_each(Phase::parameter, DType::f32, &Param::master, [&](const ParamSpec& s) { return !(halves() && s.multiplied); });
  if (settings_.compute != DType::f32) make_each(Phase::parameter, settings_.compute, &Param::copy, multiplied);
  if (halves()) make_each(Phase::parameter, DType::u16, &Param::rest, multiplied);
  make_copies();
  if (settings_.purpose == Purpose::forward) return;
  auto in = ctx_.arena.in_phase(Phase::gradient);
  if (!during())
    for (Param& p : params_) p.grad = ctx_.arena.make({p.spec.name, p.spec.layer}, runs_[std::size_t(p.spec.segment)].kept, p.spec.shape);
  if (during() || settings_.micro_batches > 1) make_loan_alone();
  for (std::size_t i = 0; i < params_.size(); ++i) {
    kept_[i] = params_[i].grad;
    if (during()) params_[i].grad = made_[i];
  }
  if (settings_.purpose == Purpose::gradients) return;
  {
    auto of_optimizer = ctx_.arena.in_phase(Phase::optimizer);
    for (std::size_t n = 0; n < Optimizer::most_states; ++n)  // the first of every weight, then the second …
      for (Param& p : params_) {
        const auto states = optimizer_.states(p.spec);
        if (n >= states.size()) continue;
        p.state.push_back(ctx_.arena.make({p.spec.name, p.spec.layer}, states[n].type, states[n].shape_for(p.spec.shape)));
      }
  }
  for (const Param& p : params_) updates_.push_back(update_of(p, p.grad));
}

void ParamStore::make_copies() {
  auto in = ctx_.arena.in_phase(Phase::parameter);
  for (Param& p : params_) {
    if (!keeps_copies(p.spec)) continue;
    const std::int64_t rows = p.spec.shape[0], columns = p.spec.shape[1];
    p.as_is = quantise::make({p.spec.name, p.spec.layer}, settings_.multiplied_in, rows, columns, ctx_);
    p.transposed = quantise::make({p.spec.name, p.spec.layer}, settings_.multiplied_in, columns, rows, ctx_);
  }
}

void ParamStore::count_copies(const std::function<Tensor(const ParamSpec&)>& of) {
  for (std::size_t i = 0; i < updates_.size(); ++i)
    if (updates_[i].as_is) updates_[i].counts = of(params_[i].spec);
}

void ParamStore::make_answering() {
  check(ctx_.dry(), Code::unsupported, "store: weights of a model that answers are counted, not held");
  auto in = ctx_.arena.in_phase(Phase::parameter);
  for (Param& p : params_) {
    const ParamSpec& s = p.spec;
    const bool fewer_bits = settings_.answering->quantises(s);
    if (fewer_bits) p.held_bytes = settings_.answering->bytes_of(p.count, s.shape[s.shape.rank - 1], settings_.compute);
    const Tensor held = fewer_bits ? ctx_.arena.make({s.name, s.layer}, DType::u8, {std::int64_t(std::ceil(p.held_bytes))})
                                   : ctx_.arena.make({s.name, s.layer}, settings_.compute, s.shape);
    p.copy = Tensor(held.data, s.shape.rank == 1 ? DType::f32 : settings_.compute, s.shape);  // as ops read it
  }
}

// A micro-batch's gradients of one group, as large as the largest group's. What two groups add to has its own place.
void ParamStore::make_loan_alone() {
  const auto place_all = [&](char* base) {
    std::size_t at = 0, most = 0;
    int group = -1;
    for (std::size_t i = 0; i < params_.size(); ++i) {
      const ParamSpec& s = params_[i].spec;
      const SegmentPart& run = runs_[std::size_t(s.segment)];
      if (shared_by_groups(run)) continue;
      if (s.group != group) group = s.group, at = 0;
      if (settings_.holding.gradients == Gradients::none && run.multiplied && run.layer >= 0) continue;
      made_[i] = Tensor(base ? base + at : nullptr, run.partial, s.shape);
      at += Arena::rounded(made_[i].bytes());
      most = std::max(most, at);
    }
    return most;
  };
  const Tensor all = ctx_.arena.make("gradients of a group", DType::f32, {std::int64_t(place_all(nullptr) / sizeof(float))});
  place_all(all.as<char>());
  if (tied_) made_[0] = ctx_.arena.make("gradients of the embedding", DType::f32, params_[0].spec.shape);
}

void ParamStore::make_shared() {
  const std::int64_t ranks = settings_.ranks.count;
  const auto make_each = [&](Phase phase, Tensor Param::*which, const auto& type, bool whole, const auto& wanted) {
    auto in = ctx_.arena.in_phase(phase);
    for (SegmentPart& r : runs_)
      if (wanted(r)) r.held.*which = ctx_.arena.make({r.name, r.layer}, type(r), {whole ? ranks * r.part : r.part});
  };
  const auto f32 = [](const SegmentPart&) { return DType::f32; };
  const auto every = [](const SegmentPart&) { return true; };
  const auto copied = [&](const SegmentPart& r) { return r.weight != DType::f32; };
  const bool whole_weights = !sharded(Sharding::everything), whole_states = !sharded(Sharding::optimizer);
  make_each(Phase::parameter, &Param::master, f32, whole_weights, [&](const SegmentPart& r) { return !copied(r); });
  if (!halves()) make_each(Phase::parameter, &Param::master, f32, whole_states, copied);
  make_each(
      Phase::parameter, &Param::copy, [](const SegmentPart& r) { return r.weight; }, whole_weights, copied);
  if (halves())
    make_each(
        Phase::parameter, &Param::rest, [](const SegmentPart&) { return DType::u16; }, whole_states, copied);
  if (settings_.purpose != Purpose::forward) {
    if (keeps_whole_gradients())
      make_each(
          Phase::gradient, &Param::grad, [](const SegmentPart& r) { return r.kept; }, true, every);
    auto in = ctx_.arena.in_phase(Phase::gradient);
    for (SegmentPart& r : runs_) {
      if (during()) continue;
      // Where gradients are kept whole, their sum takes the place of what has been sent; a replica's of FP32 all of it.
      if (!sharded(Sharding::optimizer) && r.kept == DType::f32) r.whole = r.held.grad;
      r.sum = r.whole                   ? run_of(r.whole, comm_->rank() * r.part, r.part)
              : keeps_whole_gradients() ? Tensor(r.held.grad.data, DType::f32, {r.part})
                                        : ctx_.arena.make({r.name, r.layer}, DType::f32, {r.part});
    }
  }
  if (settings_.purpose == Purpose::training) {
    auto in = ctx_.arena.in_phase(Phase::optimizer);
    for (std::size_t n = 0; n < Optimizer::most_states; ++n)
      for (SegmentPart& r : runs_) {
        const auto states = optimizer_.states(params_[std::size_t(r.params.front())].spec);
        if (n >= states.size()) continue;
        const std::int64_t elements = whole_states ? ranks * r.part : r.part;
        r.held.state.push_back(ctx_.arena.make({r.name, r.layer}, states[n].type, {elements / states[n].per}));
      }
  }
  make_loans();
  view_params();
}

// Two loans of each kind, which even and odd groups use in turn, each as large as the largest of these.
void ParamStore::make_loans() {
  const std::int64_t ranks = settings_.ranks.count;
  const auto whole_bytes = [&](const SegmentPart& r, DType type) { return Arena::rounded(std::size_t(ranks * r.part) * size_of(type)); };
  if (sharded(Sharding::everything)) {
    auto in = ctx_.arena.in_phase(Phase::parameter);
    std::array<std::size_t, 2> most{};
    for (int g = 0; g <= last_group_; ++g) {
      std::size_t sum = 0;
      each_run(g, [&](const SegmentPart& r) { sum += whole_bytes(r, r.weight); });
      most[std::size_t(g % 2)] = std::max(most[std::size_t(g % 2)], sum);
    }
    for (std::size_t i : {0, 1}) loans_[i] = ctx_.arena.make("weights of a group", DType::u8, {std::int64_t(most[i])});
  }
  if (settings_.purpose == Purpose::forward) return;
  auto in = ctx_.arena.in_phase(Phase::gradient);
  if (!swaps() && (!keeps_whole_gradients() || settings_.micro_batches > 1)) {
    std::array<std::size_t, 2> most{};
    const auto place = [&](const std::array<Tensor, 2>& loans) {
      for (int g = 0; g <= last_group_; ++g) {
        const auto turn = std::size_t(g % 2);
        std::size_t at = 0;
        for (SegmentPart& r : runs_) {
          if (r.group != g || shared_by_groups(r)) continue;
          r.made = Tensor(element_of(loans[turn], std::int64_t(at)), r.partial, {ranks * r.part});
          at += whole_bytes(r, r.partial);
        }
        most[turn] = std::max(most[turn], at);
      }
    };
    place({});
    std::array<Tensor, 2> loans;
    for (std::size_t i : {0, 1}) loans[i] = ctx_.arena.make("gradients of a group", DType::u8, {std::int64_t(most[i])});
    place(loans);
    for (SegmentPart& r : runs_)
      if (shared_by_groups(r)) r.made = ctx_.arena.make("gradients of the embedding", DType::f32, {ranks * r.part});
  }
  make_room_for_exchanges();
}

// Updates during backward wait a group, so that two groups' gradients have room; else an exchange and its sum follow each other.
void ParamStore::make_room_for_exchanges() {
  const std::int64_t ranks = settings_.ranks.count;
  const auto make = [&](Name name, Tensor SegmentPart::*which, const auto& type, std::int64_t times) {
    std::array<std::size_t, 2> most{};
    const auto place = [&](const std::array<Tensor, 2>& rooms) {
      std::size_t at = 0;
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        SegmentPart& r = runs_[i];
        if (i == 0 || r.group != runs_[i - 1].group || !during()) at = 0;
        const std::size_t turn = during() ? turn_of_parts(r.group) : 0;
        r.*which = Tensor(element_of(rooms[turn], std::int64_t(at)), type(r), {times * ranks * r.part});
        at += Arena::rounded((r.*which).bytes());
        most[turn] = std::max(most[turn], at);
      }
    };
    place({});
    std::array<Tensor, 2> rooms;
    for (std::size_t i : {0, 1})
      if (most[i] > 0) rooms[i] = ctx_.arena.make(name, DType::u8, {std::int64_t(most[i])});
    place(rooms);
  };
  const auto type = [&](const SegmentPart& r) { return keeps_whole_gradients() ? r.kept : r.partial; };
  make("gradients of other ranks", &SegmentPart::parts, type, swaps() ? ranks : 1);
  if (swaps())
    for (SegmentPart& r : runs_) r.made = run_of(r.parts, comm_->rank() * ranks * r.part, ranks * r.part);  // where the update reads it
  if (!during() || sharded(Sharding::optimizer) || swaps()) return;
  make(
      "gradients of all ranks", &SegmentPart::whole, [](const SegmentPart&) { return DType::f32; }, 1);
  for (SegmentPart& r : runs_) r.sum = run_of(r.whole, comm_->rank() * r.part, r.part);
}

// Whether both of two replicas send each other all of their gradients, and add them as they update. Exchanging parts and gathering FP32
// sums would send as much or more, and additions would run beside the step.
bool ParamStore::swaps() const { return during() && !sharded(Sharding::optimizer) && settings_.ranks.count == 2; }

void ParamStore::view_params() {
  for (std::size_t i = 0; i < params_.size(); ++i) {
    Param& p = params_[i];
    const SegmentPart& r = runs_[std::size_t(p.spec.segment)];
    const std::int64_t begin = comm_->rank() * r.part, end = begin + r.part, all = p.spec.shape.count();
    const std::int64_t from = std::clamp(begin, p.spec.at, p.spec.at + all), to = std::clamp(end, p.spec.at, p.spec.at + all);
    p.first = from - p.spec.at;
    p.count = to - from;
    const auto whole = [&](const Tensor& t) { return t ? Tensor(run_of(t, p.spec.at, all).data, t.dtype, p.spec.shape) : Tensor(); };
    for (Tensor Param::*which : {&Param::master, &Param::copy, &Param::rest}) {
      const Tensor& t = r.held.*which;
      if (t) p.*which = t.count() == r.part ? run_of(t, p.count > 0 ? from - begin : 0, p.count) : whole(t);
    }
    const auto states = optimizer_.states(p.spec);
    for (std::size_t n = 0; n < r.held.state.size(); ++n) {
      const std::int64_t per = states[n].per;
      const bool part = r.held.state[n].count() == r.part / per;
      const std::int64_t at = !part ? p.spec.at : p.count > 0 ? from - begin : 0;
      p.state.push_back(run_of(r.held.state[n], at / per, ceil_div(part ? p.count : all, per)));
    }
    if (r.sum && !during()) p.grad = run_of(r.sum, p.count > 0 ? from - begin : 0, p.count);
    made_[i] = whole(r.made);
    kept_[i] = whole(r.held.grad);
  }
}

Tensor ParamStore::owned(const Param& p, const Tensor& t) const {
  return !t ? Tensor() : t.count() == p.count ? flat(t) : run_of(t, p.first, p.count);
}
std::int64_t ParamStore::first_of(const Param& p, const Tensor& t) const { return t.count() == p.count ? p.first : 0; }

// Updates all elements, or those that this rank owns: as many as the gradient has. Alone: all, with or without a gradient.
Optimizer::Update ParamStore::update_of(const Param& p, const Tensor& grad, int parts, std::int64_t apart) const {
  const bool whole = grad.count() == p.spec.shape.count();
  const auto of = [&](const Tensor& t) { return alone() ? t : whole ? flat(t) : owned(p, t); };
  Updated u{.grad = grad,
            .master = of(p.master),
            .copy = of(p.copy),
            .rest = of(p.rest),
            .state = {},
            .decay = p.spec.decay,
            .parameter = std::uint32_t(&p - params_.data()),
            .first = whole || alone() ? 0 : p.first,
            .parts = parts,
            .apart = apart,
            .as_is = p.as_is,
            .transposed = p.transposed};
  const auto states = optimizer_.states(p.spec);
  for (std::size_t n = 0; n < states.size(); ++n) {
    const std::int64_t per = states[n].per, mine = ceil_div(p.count, per);
    const Tensor& t = p.state[n];
    u.state.push_back(alone() ? t : whole || t.count() == mine ? flat(t) : run_of(t, p.first / per, mine));
  }
  return optimizer_.update(u);
}

// part: this rank's of the run's gradient, or the first of as many parts of it.
std::vector<Optimizer::Update> ParamStore::owned_updates(const SegmentPart& r, const Tensor& part, int parts, std::int64_t apart) const {
  std::vector<Optimizer::Update> all;
  for (const int i : r.params) {
    const Param& p = params_[std::size_t(i)];
    if (p.count == 0) continue;
    all.push_back(update_of(p, run_of(part, p.spec.at + p.first - comm_->rank() * r.part, p.count), parts, apart));
  }
  return all;
}

// whole: the run's gradient, or the first of as many parts of it.
std::vector<Optimizer::Update> ParamStore::whole_updates(const SegmentPart& r, const Tensor& whole, int parts, std::int64_t apart) const {
  std::vector<Optimizer::Update> all;
  for (const int i : r.params) {
    const Param& p = params_[std::size_t(i)];
    all.push_back(update_of(p, run_of(whole, p.spec.at, p.spec.shape.count()), parts, apart));
  }
  return all;
}

// Which lease needs what. Rows are looked up in forward alone.
bool ParamStore::needs_weights(int group, Pass pass) const { return pass == Pass::forward || group != 0; }

std::int64_t ParamStore::place_in_loan(int group, const SegmentPart& run) const {
  std::size_t at = 0, found = 0;
  each_run(group, [&](const SegmentPart& r) {
    if (&r == &run) found = at;
    at += Arena::rounded(std::size_t(settings_.ranks.count * r.part) * size_of(r.weight));
  });
  return std::int64_t(found);
}

Weight ParamStore::weight(int group, WeightRole role) const {
  const bool tied_head = role == WeightRole::head && tied_;
  auto i = std::size_t(tied_head ? 0 : begin_of_[std::size_t(group)]);
  const auto end = std::size_t(begin_of_[std::size_t(group) + 1]);
  while (!tied_head && i < end && params_[i].spec.role != role) ++i;
  check(tied_head || i < end, Code::bad_argument, "store: group {} has no such weight", group);
  const Param& p = params_[i];
  const SegmentPart& r = runs_[std::size_t(p.spec.segment)];
  Weight w;
  if (sharded(Sharding::everything)) {
    const Tensor run(element_of(loans_[std::size_t(group % 2)], place_in_loan(group, r)), r.weight, {settings_.ranks.count * r.part});
    w.w = Tensor(element_of(run, p.spec.at), r.weight, p.spec.shape);
  } else {
    w.w = p.copy ? p.copy : p.master;
    w.held_bytes = p.held_bytes;
    w.as_is = p.as_is, w.transposed = p.transposed;
  }
  if (settings_.purpose == Purpose::forward) return w;
  w.dw = in_place(r) ? kept_[i] : made_[i];
  if (!w.dw && !updates_.empty()) w.update = &updates_[i];
  w.numbers = numbers_;
  return w;
}

// ---- values from and to the outside

// Calls fill(FP32 scratch, number of its first element among those of the parameter that are held, …) for every piece of a weight in halves.
template <class Fill>
void ParamStore::in_pieces(const Param& p, Fill&& fill) {
  const Tensor upper = p.copy.count() == p.rest.count() ? flat(p.copy) : owned(p, p.copy), rest = flat(p.rest);
  constexpr std::int64_t least = 64;  // FP32 numbers that any step has room for
  const auto room = std::int64_t((ctx_.arena.capacity() - ctx_.arena.used()) / sizeof(float));
  const std::int64_t most = std::clamp<std::int64_t>(room / 2 / least * least, least, 1 << 22);  // half: the step has the peak
  for (std::int64_t at = 0; at < rest.count(); at += most) {
    auto scope = ctx_.arena.scope();
    const std::int64_t n = std::min(most, rest.count() - at);
    const Tensor piece = ctx_.arena.make({p.spec.name, p.spec.layer}, DType::f32, {n});
    fill(piece, at);
    copy::split(piece, run_of(upper, at, n), run_of(rest, at, n), ctx_);
  }
}

void ParamStore::initialise(std::uint64_t seed) {
  if (ctx_.dry()) return;
  for (std::size_t index = 0; index < params_.size(); ++index) {
    stop_if_interrupted(" while the weights were filled");  // billions take minutes on a CPU
    const Param& p = params_[index];
    const std::int64_t first = first_of(p, p.rest ? p.rest : p.master);
    const auto fill = [&](const Tensor& t, std::int64_t at) {
      p.spec.std == 0 ? fill::constant(t, p.spec.mean, ctx_)
                      : fill::normal(t, Random{seed}.stream(index), p.spec.mean, p.spec.std, ctx_, first + at);
    };
    p.rest ? in_pieces(p, fill) : fill(flat(p.master), 0);
    for (const Tensor& t : p.state)  // zeros, whose bits are the same in every type; up to 3 bytes more belong to nothing else
      fill::constant(Tensor(t.data, DType::f32, {ceil_div(std::int64_t(t.bytes()), 4)}), 0, ctx_);
  }
  refresh_copies();
}

void ParamStore::refresh_copies() {
  for (const Param& p : params_)
    if (p.copy && p.master && p.master.count() > 0)
      copy::copy(flat(p.master), p.copy.count() == p.master.count() ? flat(p.copy) : owned(p, p.copy), ctx_);
  for (const Param& p : params_)
    if (p.as_is) quantise::quantise({.x = p.copy, .as_is = p.as_is, .transposed = p.transposed}, ctx_);
  if (!sharded(Sharding::optimizer) || sharded(Sharding::everything)) return;
  for (const SegmentPart& r : runs_) share_weights(r);
  settle();
}

// All of a tensor that has a number for every `per` elements of a parameter: `mine` is what this rank has of it, `held` of its run.
std::vector<char> ParamStore::whole_values(const Param& p, const Tensor& mine, const Tensor& held, std::int64_t per) {
  const auto size = std::int64_t(size_of(mine.dtype)), count = ceil_div(p.spec.shape.count(), per);
  std::vector<char> all(std::size_t(count * size));
  const SegmentPart& r = runs_[std::size_t(p.spec.segment)];
  const std::int64_t part = r.part / per, place = p.spec.at / per;
  if (alone() || held.count() != part) {
    read(mine, all.data(), ctx_);
    return all;
  }
  const std::int64_t ranks = settings_.ranks.count, step = grain / per;
  auto scope = ctx_.arena.scope();
  const auto room = std::int64_t((ctx_.arena.capacity() - ctx_.arena.used()) / std::size_t(ranks * size));
  const std::int64_t most = std::clamp(room / step * step, step, std::min<std::int64_t>(part, 1 << 18));
  for (std::int64_t at = 0; at < part; at += most) {
    const std::int64_t n = std::min(most, part - at);
    auto inner = ctx_.arena.scope();
    const Tensor whole = ctx_.arena.make({"values of all ranks", r.layer}, mine.dtype, {ranks * n});
    comm_->carries({"values", r.layer});
    comm_->gather(run_of(held, at, n), whole, ctx_.stream);
    const auto values = [&] {
      std::vector<char> host(whole.bytes());
      read(whole, host.data(), ctx_);
      return host;
    }();
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t begin = rank * part + at - place, from = std::max<std::int64_t>(begin, 0), to = std::min(begin + n, count);
      if (from < to)
        std::memcpy(all.data() + from * size, values.data() + (rank * n + from - begin) * size, std::size_t((to - from) * size));
    }
  }
  return all;
}

std::vector<float> ParamStore::values(const Param& p) {
  std::vector<float> all(std::size_t(p.spec.shape.count()));
  const Param& held = runs_[std::size_t(p.spec.segment)].held;
  if (p.rest) {
    const auto upper = whole_values(p, p.copy, held.copy), rest = whole_values(p, p.rest, held.rest);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = copy::join({reinterpret_cast<const bf16*>(upper.data())[i], reinterpret_cast<const std::uint16_t*>(rest.data())[i]});
    return all;
  }
  const auto bytes = whole_values(p, p.master, held.master);
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

void ParamStore::set_values(const Param& p, const float* whole) {
  if (!p.rest) return write(whole + first_of(p, p.master), flat(p.master), ctx_);
  std::vector<bf16> upper(std::size_t(p.rest.count()));
  std::vector<std::uint16_t> rest(upper.size());
  for (std::size_t i = 0; i < upper.size(); ++i) {
    const copy::Halves h = copy::split(whole[std::size_t(first_of(p, p.rest)) + i]);
    upper[i] = h.upper;
    rest[i] = h.rest;
  }
  write(upper.data(), p.copy.count() == p.rest.count() ? flat(p.copy) : owned(p, p.copy), ctx_);
  write(rest.data(), flat(p.rest), ctx_);
}

std::vector<char> ParamStore::state(const Param& p, std::size_t n) {
  const SegmentPart& r = runs_[std::size_t(p.spec.segment)];
  return whole_values(p, p.state[n], alone() ? Tensor() : r.held.state[n], optimizer_.states(p.spec)[n].per);
}

void ParamStore::set_state(const Param& p, std::size_t n, const char* whole) {
  const std::int64_t per = optimizer_.states(p.spec)[n].per;
  const Tensor& t = p.state[n];
  const bool part = !alone() && runs_[std::size_t(p.spec.segment)].held.state[n].count() == runs_[std::size_t(p.spec.segment)].part / per;
  write(whole + (part ? p.first / per * std::int64_t(size_of(t.dtype)) : 0), flat(t), ctx_);
}

}  // namespace headroom::engine
