#include "engine/store/store.h"

#include <utility>

#include "base/error.h"
#include "engine/store/runs.h"

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

void ParamStore::count_copies(const std::function<Tensor(const ParamSpec&)>& of) {
  for (std::size_t i = 0; i < updates_.size(); ++i)
    if (updates_[i].as_is) updates_[i].counts = of(params_[i].spec);
}

// Whether both of two replicas send each other all of their gradients, and add them as they update. Exchanging parts and gathering FP32
// sums would send as much or more, and additions would run beside the step.
bool ParamStore::swaps() const { return during() && !sharded(Sharding::optimizer) && settings_.ranks.count == 2; }

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

}  // namespace headroom::engine
