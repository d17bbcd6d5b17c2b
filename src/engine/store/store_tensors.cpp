// The tensors of a store: what is allocated, alone and with ranks, and which of them each parameter sees.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "engine/store/runs.h"
#include "engine/store/store.h"
#include "ops/quantise/quantise.h"

namespace headroom::engine {

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

}  // namespace headroom::engine
