// What a store does while a step runs: weights come, gradients go and are added, groups are updated. Its tensors: store_tensors.cpp; its
// values: store_values.cpp.
#include <algorithm>

#include "engine/store/runs.h"
#include "engine/store/store.h"
#include "ops/gradient_sum/gradient_sum.h"

namespace headroom::engine {

// ---- the lane: collectives, and the sums that follow them, beside the work of the main queue

Context ParamStore::beside() const {
  Context side = ctx_;
  if (lane_->stream()) side.stream = lane_->stream();
  return side;
}

void ParamStore::exchange(const char* what, const SegmentPart& r, const Tensor& mine, const Tensor& theirs, dist::Own own,
                          const Context& side) {
  const double bytes = double(mine.bytes());
  const auto op =
      side.note({what, r.layer}, {mine.dtype}, {0, 2 * bytes, dist::sent_bytes(dist::Call::exchange, bytes, settings_.ranks.count)});
  comm_->carries({what, r.layer});
  comm_->exchange(mine, theirs, side.stream, own);
}

void ParamStore::gather_parts(const char* what, int layer, const Tensor& part, const Tensor& whole, const Context& side) {
  const double bytes = double(whole.bytes());
  const auto op =
      side.note({what, layer}, {part.dtype}, {0, 2 * bytes, dist::sent_bytes(dist::Call::gather, bytes, settings_.ranks.count)});
  comm_->carries({what, layer});
  comm_->gather(part, whole, side.stream);
}

void ParamStore::wait(int mark) {
  if (!std::exchange(waiting_[std::size_t(mark)], false)) return;
  lane_->wait(mark, ctx_.stream);
}

void ParamStore::settle() {
  for (int mark = 0; mark < marks; ++mark) wait(mark);
}

void ParamStore::fetch(int group) {
  const auto turn = std::size_t(group % 2);
  lane_->follow(ctx_.stream);
  const Context side = beside();
  each_run(group, [&](const SegmentPart& r) {
    const Tensor whole(element_of(loans_[turn], place_in_loan(group, r)), r.weight, {settings_.ranks.count * r.part});
    gather_parts("weights", r.layer, weights_of(r), whole, side);
  });
  lane_->mark(mark_weights + int(turn));
  waiting_[turn + mark_weights] = true;
  lent_[turn] = group;
}

void ParamStore::prefetch(int group, Pass pass) {
  if (!sharded(Sharding::everything) || group < 0 || group > last_group_ || !needs_weights(group, pass)) return;
  if (lent_[std::size_t(group % 2)] != group) fetch(group);
}

void ParamStore::gather(int group, Pass pass) {
  prefetch(group, pass);
  if (alone()) return;
  wait(mark_weights + group % 2);
  if (pass == Pass::backward) wait(mark_gradients + group % 2);  // the loan's gradients of before have been sent
}

void ParamStore::begin(int micro) {
  settle();
  micro_ = micro;
  lent_ = {-1, -1};  // a recorded step finds in the loans what the step before left there
}

void ParamStore::end() {
  update_sent();
  settle();
}

// ---- gradients

void ParamStore::finish(int group) {
  if (settings_.purpose == Purpose::forward) return;
  if (alone() && during() && updating()) {  // one op for the group
    auto phase = ctx_.arena.in_phase(Phase::optimizer);
    std::vector<Optimizer::Update> standing;
    for (int i = begin_of_[std::size_t(group)]; i < begin_of_[std::size_t(group) + 1]; ++i)
      if (updates_[std::size_t(i)].grad) standing.push_back(updates_[std::size_t(i)]);
    return Optimizer::advance(standing, numbers_, ctx_);
  }
  if (during() && updating()) return send(group);
  for (const SegmentPart& r : runs_)
    if (r.group == group) alone() ? finish_alone(r) : finish_shared(r);
}

void ParamStore::finish_alone(const SegmentPart& r) {
  if (during() || in_place(r)) return;
  const auto into = micro_ == 0 ? Gradient::overwrite : Gradient::accumulate;
  for (const int i : r.params) gradient_sum::add(flat(made_[std::size_t(i)]), 1, 0, flat(kept_[std::size_t(i)]), into, ctx_);
}

void ParamStore::finish_shared(const SegmentPart& r) {
  const auto into = micro_ == 0 ? Gradient::overwrite : Gradient::accumulate;
  if (!keeps_whole_gradients()) return reduce(r, r.made, into);
  if (!in_place(r)) gradient_sum::add(r.made, 1, 0, r.held.grad, into, ctx_);
  if (micro_ + 1 == settings_.micro_batches) reduce(r, r.held.grad, Gradient::overwrite);
}

// With two ranks a sum has two parts, at any addresses: what this rank made for itself is read where it was made, and not copied. Whole gradients that are
// kept become the sum in place.
bool ParamStore::reads_own_in_place() const { return settings_.ranks.count == 2 && !swaps() && !keeps_whole_gradients(); }

ParamStore::Sent ParamStore::sent_to_here(const SegmentPart& r) const {
  if (!reads_own_in_place()) return {run_of(r.parts, 0, r.part), r.part};
  const int rank = comm_->rank();
  const Tensor own = run_of(r.made, rank * r.part, r.part), other = run_of(r.parts, (1 - rank) * r.part, r.part);
  const auto [first, second] = rank == 0 ? std::pair(own, other) : std::pair(other, own);
  return {first, (second.as<char>() - first.as<char>()) / std::int64_t(size_of(first.dtype))};
}

// The gradients of all ranks come here, beside what the main queue does next. They are added now, or by the update that reads them.
void ParamStore::reduce(const SegmentPart& r, const Tensor& from, Gradient into) {
  lane_->follow(ctx_.stream);
  Context side = beside();
  if (swaps())
    gather_parts("gradients", r.layer, from, r.parts, side);
  else
    exchange("gradients", r, from, r.parts, reads_own_in_place() ? dist::Own::left : dist::Own::copied, side);
  if (r.sum) {
    const Sent sent = sent_to_here(r);
    gradient_sum::add(sent.first, settings_.ranks.count, sent.apart, r.sum, into, side);
  }
  if (r.whole) gather_parts("gradients of all ranks", r.layer, r.sum, r.whole, side);
  const int mark = mark_gradients + r.group % 2;
  lane_->mark(mark);
  waiting_[std::size_t(mark)] = true;
}

// A group's gradients travel while the next group computes: the update before is made in that time.
void ParamStore::send(int group) {
  if (sent_ >= 0 && turn_of_parts(sent_) == turn_of_parts(group)) update_sent();
  for (const SegmentPart& r : runs_)
    if (r.group == group) reduce(r, r.made, Gradient::overwrite);
  update_sent();
  sent_ = group;
}

// The update reads the parts of all ranks and adds them as it goes. Two replicas read both whole gradients, more read their sum.
void ParamStore::update_sent() {
  const int group = std::exchange(sent_, -1);
  if (group < 0) return;
  wait(mark_gradients + group % 2);
  auto phase = ctx_.arena.in_phase(Phase::optimizer);
  update_group(group, numbers_);
}

void ParamStore::update_group(int group, const Tensor& numbers) {
  std::vector<Optimizer::Update> all;
  for (const SegmentPart& r : runs_) {
    if (r.group != group) continue;
    const std::int64_t whole = settings_.ranks.count * r.part;
    const Sent sent = sent_to_here(r);
    const auto some = swaps()   ? whole_updates(r, run_of(r.parts, 0, whole), settings_.ranks.count, whole)
                      : r.whole ? whole_updates(r, r.whole)
                      : r.sum   ? owned_updates(r, r.sum, 1, 0)
                                : owned_updates(r, sent.first, settings_.ranks.count, sent.apart);
    all.insert(all.end(), some.begin(), some.end());
  }
  Optimizer::advance(all, numbers, ctx_);
  if (sharded(Sharding::everything) && lent_[std::size_t(group % 2)] == group) lent_[std::size_t(group % 2)] = -1;
  if (!sharded(Sharding::optimizer) || sharded(Sharding::everything)) return;
  for (const SegmentPart& r : runs_)
    if (r.group == group) share_weights(r);
}

void ParamStore::share_weights(const SegmentPart& r) {
  const Tensor whole = weights_of(r);
  lane_->follow(ctx_.stream);
  gather_parts("updated weights", r.layer, run_of(whole, comm_->rank() * r.part, r.part), whole, beside());
  lane_->mark(mark_rest);
  waiting_[mark_rest] = true;
}

// ---- the update after backward

Tensor ParamStore::norm(const Optimizer::Hyper& hyper, const Tensor& state) {
  const auto here = ctx_.inside("optimiser");
  auto phase = ctx_.arena.in_phase(Phase::optimizer);
  settle();
  const Tensor sums = Optimizer::make_sums(settings_.ranks.count, ctx_);
  if (alone()) {
    Optimizer::squares(updates_, sums, 0, ctx_);
    return Optimizer::begin(state, hyper, ctx_, sums);
  }
  std::vector<Optimizer::Update> all;
  for (const SegmentPart& r : runs_) {
    const auto some = owned_updates(r, r.sum, 1, 0);
    all.insert(all.end(), some.begin(), some.end());
  }
  const int rank = comm_->rank();
  Optimizer::squares(all, sums, rank, ctx_);
  lane_->follow(ctx_.stream);
  gather_parts("norms", -1, run_of(sums, rank * sums.shape[1], sums.shape[1]), sums, beside());
  lane_->mark(mark_rest);
  waiting_[mark_rest] = true;
  wait(mark_rest);
  return Optimizer::begin(state, hyper, ctx_, sums);
}

void ParamStore::step(const Tensor& numbers) {
  const auto here = ctx_.inside("optimiser");
  auto phase = ctx_.arena.in_phase(Phase::optimizer);
  if (alone()) return Optimizer::advance(updates_, numbers, ctx_);
  if (!sharded(Sharding::optimizer)) return step_replicas(numbers);
  for (int group = 0; group <= last_group_; ++group) update_group(group, numbers);  // one group's weights travel while the next is updated
  settle();
}

// Sums that are wider than the gradients they come from have no room until now: one is gathered while the one before updates.
void ParamStore::step_replicas(const Tensor& numbers) {
  std::vector<Optimizer::Update> here;
  std::vector<const SegmentPart*> elsewhere;
  for (const SegmentPart& r : runs_) {
    if (!r.whole) {
      elsewhere.push_back(&r);
      continue;
    }
    const auto some = whole_updates(r, r.whole);
    here.insert(here.end(), some.begin(), some.end());
  }
  const auto whole_count = [&](const SegmentPart& r) { return settings_.ranks.count * r.part; };
  std::int64_t most = 0;
  for (const SegmentPart* r : elsewhere) most = std::max(most, whole_count(*r));
  auto scope = ctx_.arena.scope();
  std::array<Tensor, 2> rooms;
  if (most > 0)
    for (Tensor& room : rooms) room = ctx_.arena.make("gradients of all ranks", DType::f32, {most});
  const auto room_of = [&](std::size_t i) { return run_of(rooms[i % 2], 0, whole_count(*elsewhere[i])); };
  const auto bring = [&](std::size_t i) {
    if (i >= elsewhere.size()) return;
    const int mark = mark_rest + int(i % 2);
    lane_->follow(ctx_.stream);
    gather_parts("gradients of all ranks", elsewhere[i]->layer, elsewhere[i]->sum, room_of(i), beside());
    lane_->mark(mark);
    waiting_[std::size_t(mark)] = true;
  };
  bring(0);
  if (!here.empty()) Optimizer::advance(here, numbers, ctx_);
  for (std::size_t i = 0; i < elsewhere.size(); ++i) {
    bring(i + 1);
    wait(mark_rest + int(i % 2));
    Optimizer::advance(whole_updates(*elsewhere[i], room_of(i)), numbers, ctx_);
  }
}

Tensor ParamStore::first_gradient() const {
  const Tensor t = alone() ? params_.front().grad : runs_.front().sum;
  return Tensor(t.data, DType::f32, {1});
}

}  // namespace headroom::engine
