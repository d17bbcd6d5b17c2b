// The account of one card, from what was read of it.
#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "studies/forecast/reading.h"

namespace headroom::studies {

namespace {

constexpr std::size_t curve_points = 240;
constexpr const char* saved = "saved for backward";

}  // namespace

std::string Reading::what_is(const CardLog& c, const BlockLife& life) const {
  if (life.workspace) return "workspaces of cuBLAS";
  const PhaseKind kind = kind_of_phase(phases_[life.phase]);
  const auto ends_after = [&](PhaseKind k) {  // the end of the phase that it was allocated in
    const auto at = std::upper_bound(c.phase_changes.begin(), c.phase_changes.end(), std::pair(life.from, ~std::uint32_t(0)));
    for (auto next = at; next != c.phase_changes.end(); ++next)
      if (kind_of_phase(phases_[next->second]) != k) return next->first;
    return never;
  };
  const auto step_end = std::upper_bound(c.step_ends.begin(), c.step_ends.end(), life.from);
  const bool across_steps = step_end != c.step_ends.end() && life.to > *step_end;
  switch (kind) {
    case PhaseKind::before: return "weights, and what else was made before the first step";
    case PhaseKind::forward: {
      if (across_steps) return "kept across steps";
      for (auto at = std::upper_bound(c.phase_changes.begin(), c.phase_changes.end(), std::pair(life.from, ~std::uint32_t(0)));
           at != c.phase_changes.end() && at->first <= life.to; ++at)
        if (kind_of_phase(phases_[at->second]) == PhaseKind::backward) return saved;
      return life.to == never ? saved : "temporaries of forward";
    }
    case PhaseKind::backward: {
      const std::uint64_t end = ends_after(PhaseKind::backward);
      if (end == never) return "gradients, and temporaries of backward";  // it was not seen to its end
      return life.to >= end ? "gradients" : "temporaries of backward";
    }
    case PhaseKind::optimizer: return life.to >= ends_after(PhaseKind::optimizer) ? "optimizer state" : "temporaries of the optimizer";
    case PhaseKind::other: return phases_[life.phase];
  }
  return "";
}

std::vector<ForecastBlockRow> Reading::rows_of(const CardLog& c, int rank, std::uint64_t at, bool only_saved) {
  struct Sum {
    std::uint64_t bytes = 0;
    std::int64_t blocks = 0;
  };
  std::map<std::array<std::string, 3>, Sum> sums;
  std::uint64_t all = 0;
  for (const BlockLife& life : c.lives) {
    if (life.from > at || life.to <= at) continue;
    std::string what = what_is(c, life);
    if (only_saved && what != saved) continue;
    const auto scope = scopes_.find(life.scope);
    Sum& sum = sums[{std::move(what), scope == scopes_.end() ? "" : scope->second, lines_(life.stack).line}];
    sum.bytes += life.bytes;
    ++sum.blocks;
    all += life.bytes;
  }
  std::vector<ForecastBlockRow> rows;
  for (const auto& [key, sum] : sums)
    rows.push_back({rank, key[0], key[1], key[2], sum.bytes, double(sum.bytes) / double(std::max<std::uint64_t>(all, 1)), sum.blocks});
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return rows;
}

ProgramAccount Reading::account_of(std::uint32_t device, CardLog& c) {
  ProgramAccount a;
  for (const int card : {-1, int(device)})
    if (const auto said = fractions_.find(card); said != fractions_.end()) a.fraction = said->second;
  if (a.fraction && a.fraction->share >= 1) a.fraction.reset();
  a.pid = process_.head().pid;
  a.rank = process_.head().rank >= 0 ? process_.head().rank : int(device);  // without a launcher: a card each
  a.card = int(device);
  a.ran_out = c.ran_out;
  a.others_bytes = c.card_most - c.driver_most;
  constexpr std::uint64_t page = 2 << 20;
  a.pool_slack_bytes = c.pool_taken - std::min(c.pool_taken, (c.pool_live + page - 1) / page * page);
  a.addresses_matter = c.pool_taken > 0;  // what a driver's pool keeps is not published
  a.libraries_bytes = c.libraries_most;
  if (c.points.empty()) {  // no PyTorch: what the program took from the driver
    a.peak_allocated_bytes = a.peak_reserved_bytes = c.blocks_most;
    a.elsewhere_bytes = c.driver_most - c.blocks_most;
    a.addresses_matter |= !story_.torch.empty();
    if (c.pool_taken > 0) {  // PyTorch by cudaMallocAsync
      a.peak_allocated_bytes = c.pool_live;
      a.peak_reserved_bytes = c.pool_taken;
      a.elsewhere_bytes = c.driver_most - std::min(c.driver_most, c.pool_taken);
    }
    return a;
  }
  std::uint64_t peak = 0;
  for (std::uint64_t i = 0; i < c.points.size(); ++i) {
    if (c.points[i].allocated > c.points[peak].allocated) peak = i;
    a.peak_reserved_bytes = std::max(a.peak_reserved_bytes, c.points[i].reserved);
  }
  a.elsewhere_bytes = c.driver_most > a.peak_reserved_bytes ? c.driver_most - a.peak_reserved_bytes : 0;
  const Point& top = c.points[peak];
  a.peak_allocated_bytes = top.allocated;
  settle_tried(c);
  std::ranges::sort(c.workspaces, {}, &dry::Workspace::block);
  add_spread(device, a, c);
  a.blocks = std::int64_t(c.lives.size());
  a.peak_phase = phases_[top.phase];
  a.peak_line = lines_(top.stack).line;
  a.peak_own_line = lines_(top.stack).own;
  const auto step_of = [&](std::uint64_t at) {
    return std::int64_t(std::upper_bound(c.step_ends.begin(), c.step_ends.end(), at) - c.step_ends.begin()) + 1;
  };
  a.peak_step = kind_of_phase(a.peak_phase) == PhaseKind::before ? 0 : step_of(peak);
  a.unsure_bytes = unsure_;
  add_before_update(c, a);
  add_steps(c, a);
  add_phases(c, a);
  a.at_peak = rows_of(c, a.rank, peak, false);
  add_saved(c, a, a.peak_step);
  add_curve(c, a);
  return a;
}

// A card skips steps in which the scaled loss overflows, until the scale is small enough. Where that may be all that the program has, no state is made.
void Reading::add_before_update(const CardLog& c, ProgramAccount& a) const {
  if (std::uint64_t(story_.skips) < std::max<std::uint64_t>(c.step_ends.size(), 1) || c.first_update > c.points.size()) return;
  dry::Needs until;
  for (std::uint64_t i = 0; i < c.first_update; ++i) {
    until.allocated = std::max(until.allocated, c.points[i].allocated);
    until.reserved = std::max(until.reserved, c.points[i].reserved);
  }
  a.before_update = until;
}

// One engine in nine was not listed where the rule has it. So of the largest workspaces in which kernels are tried, by size, two may be smaller.
void Reading::settle_tried(CardLog& c) {
  constexpr std::size_t may_lack = 2;
  std::set<std::uint64_t, std::greater<>> sizes;
  for (const dry::Workspace& w : c.tried) sizes.insert(c.lives[w.block].bytes);
  if (sizes.size() <= may_lack) return;
  const std::uint64_t below = *std::next(sizes.begin(), may_lack - 1);
  std::map<std::size_t, std::uint64_t> seldom_less;
  for (const dry::Workspace& w : c.tried)
    if (c.lives[w.block].bytes < below) seldom_less[w.block] = w.least;
  for (dry::Workspace& w : c.workspaces)
    if (const auto at = seldom_less.find(w.block); at != seldom_less.end()) w.least = std::max(w.least, at->second);
}

void Reading::add_spread(std::uint32_t device, ProgramAccount& a, const CardLog& c) const {
  const auto requests = process_.requests(device);
  const bool expandable =
      std::ranges::any_of(requests, [](const dry::Request& r) { return r.what == std::uint32_t(dry::RequestIs::mapped); });
  if (expandable) return;
  const dry::FileHead& head = process_.head();
  std::uint64_t limit = head.device_bytes - std::min(head.device_bytes, head.context_bytes + a.elsewhere_bytes + a.others_bytes);
  if (a.fraction) limit = std::min(limit, a.fraction->of(head.device_bytes));
  if (a.peak_reserved_bytes > limit) limit = 0;  // the run had none
  dry::AllocatorSettings set{.max_split = max_split_, .divisions = divisions_, .torch = story_.torch};
  if (a.fraction && limit != 0) set.collects_above = std::uint64_t(collects_above_ * double(a.fraction->of(head.device_bytes)));
  a.spread = requests.empty() ? std::nullopt : dry::spread_of(requests, limit, c.taken_by_step, c.workspaces, set);
  if (a.spread && (a.spread->run.reserved != a.peak_reserved_bytes || a.spread->run.allocated != a.peak_allocated_bytes)) a.spread.reset();
  a.addresses_matter |= !a.spread && story_.torch_with_cuda && !story_.torch.empty();
}

void Reading::add_steps(const CardLog& c, ProgramAccount& a) const {
  std::uint64_t from = 0;
  for (const std::uint64_t end : c.step_ends) {
    ForecastStepRow row{a.rank, std::int64_t(a.steps.size()) + 1, 0, 0, {}, {}};
    for (std::uint64_t i = from; i < end; ++i) {
      row.peak_allocated_bytes = std::max(row.peak_allocated_bytes, c.points[i].allocated);
      row.peak_reserved_bytes = std::max(row.peak_reserved_bytes, c.points[i].reserved);
    }
    if (a.spread && a.steps.size() < a.spread->steps.size()) {
      const dry::StepSpread& step = a.spread->steps[a.steps.size()];
      const ReservedRange range = reserved_range(step.low, step.high, a.unsure_bytes);
      row.reserved_low_bytes = range.low;
      row.reserved_high_bytes = range.high;
    }
    a.steps.push_back(row);
    from = end;
  }
  a.whole_steps = std::int64_t(a.steps.size());
  if (!a.steps.empty()) a.step_allocated_bytes = a.steps.back().peak_allocated_bytes;
}

void Reading::add_phases(const CardLog& c, ProgramAccount& a) const {
  std::vector<ForecastPhaseRow> rows(phases_.size());
  for (std::size_t i = 0; i < c.phase_changes.size(); ++i) {
    const auto [from, phase] = c.phase_changes[i];
    const std::uint64_t to = i + 1 < c.phase_changes.size() ? c.phase_changes[i + 1].first : c.points.size();
    ForecastPhaseRow& row = rows[phase];
    ++row.count;
    for (std::uint64_t k = from == to && from > 0 ? from - 1 : from; k < to; ++k) {  // where nothing was allocated: what was there
      row.peak_allocated_bytes = std::max(row.peak_allocated_bytes, c.points[k].allocated);
      row.peak_reserved_bytes = std::max(row.peak_reserved_bytes, c.points[k].reserved);
    }
    if (to > 0) row.end_bytes = c.points[to - 1].allocated;
  }
  for (const auto& [from, phase] : c.phase_changes) {  // in the order in which they came first
    if (rows[phase].count == 0) continue;
    rows[phase].rank = a.rank;
    rows[phase].phase = phases_[phase];
    a.phases.push_back(std::move(rows[phase]));
    rows[phase].count = 0;
  }
}

void Reading::add_saved(const CardLog& c, ProgramAccount& a, std::int64_t step) {
  std::optional<std::uint64_t> begin;
  for (const auto& [from, phase] : c.phase_changes) {
    if (kind_of_phase(phases_[phase]) != PhaseKind::backward || from == 0) continue;
    const auto of = std::int64_t(std::upper_bound(c.step_ends.begin(), c.step_ends.end(), from) - c.step_ends.begin()) + 1;
    if (!begin || of <= std::max<std::int64_t>(step, 1)) begin = from;
  }
  if (!begin) return;
  a.saved = rows_of(c, a.rank, *begin - 1, true);
  for (const ForecastBlockRow& row : a.saved) a.saved_bytes += row.bytes;
}

void Reading::add_curve(const CardLog& c, ProgramAccount& a) const {
  // The last three of many steps are like the others.
  const std::size_t begin = c.step_ends.size() > 6 ? c.step_ends[c.step_ends.size() - 4] : 0, all = c.points.size() - begin;
  const std::size_t n = std::min(curve_points, all);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t from = begin + i * all / n, to = begin + (i + 1) * all / n;
    std::size_t most = from;
    for (std::size_t k = from; k < to; ++k)
      if (c.points[k].allocated > c.points[most].allocated) most = k;
    const Point& p = c.points[most];
    a.curve.push_back({a.rank, double(p.at_ns) / 1e6, phases_[p.phase], p.allocated, p.reserved});
  }
}

}  // namespace headroom::studies
