#include "studies/forecast/told.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace headroom::studies {

namespace {

int ranks_of(const std::vector<ProcessStory>& processes) {
  int ranks = 0;
  for (const ProcessStory& p : processes) ranks = std::max(ranks, p.collectives ? p.ranks : 1);
  return std::max(1, ranks);
}

// What a rank may need on the card. Where a card was not measured, what is beside the tensors is a reserve, chosen too large rather than too
// small: half of it is the least.
void set_interval(ForecastRankRow& row, const ProgramAccount& a, const Told& t, bool bounded) {
  const bool measured = overhead_of(t, int(std::max<std::size_t>(1, t.accounts.size()))).measured;
  const std::uint64_t less = measured ? 0 : t.room.overhead_bytes / 2;
  row.low_bytes = reserved_range(a).low + row.beside_bytes - less;
  if (bounded && !a.addresses_matter) row.high_bytes = reserved_range(a).high + row.beside_bytes;
  const bool has_room = row.needed_bytes <= t.room.memory_bytes && a.spread && a.spread->limit != 0 &&
                        a.spread->ran_out == 0;  // at the limit PyTorch empties its cache
  if (row.high_bytes && has_room) row.high_bytes = std::min(*row.high_bytes, t.room.memory_bytes);
  // What the program lets PyTorch reserve; with expandable segments PyTorch 2.15 was seen to reserve a few MiB more.
  const std::uint64_t own = std::max(a.fraction ? a.fraction->of(t.room.memory_bytes) : t.room.memory_bytes, a.peak_reserved_bytes);
  // Where that is too little at other addresses, a program that caught the error here catches it there.
  if (row.high_bytes && t.went_on && a.ran_out)
    row.high_bytes = std::min(*row.high_bytes, std::min(own + row.beside_bytes, std::max(row.needed_bytes, t.room.memory_bytes)));
  const bool allowed = has_room || !a.fraction || (row.high_bytes ? *row.high_bytes - row.beside_bytes : reserved_range(a).high) <= own;
  row.fits = allowed && row.high_bytes.value_or(row.needed_bytes) <= t.room.memory_bytes;
}

// What the processes that are no ranks have together on the one card that they use: the one that reserves most has it all beside its own. So it is with
// one that only opens another one's memory (CUDA IPC), which has a context there. What a card has was written down by whoever changed it last, which
// may be a small one.
void add_neighbours(Told& t, const std::vector<ProcessStory>& stories) {
  std::uint64_t together = 0;
  for (const ProcessStory& p : stories) together = std::max(together, p.seen_bytes);
  const auto own = [](const ProgramAccount& a) { return a.peak_reserved_bytes + a.elsewhere_bytes; };
  for (const ProgramAccount& a : t.accounts)
    if (a.others_bytes > 0) together = std::max(together, own(a) + a.others_bytes);
  const bool one_card = std::ranges::all_of(t.accounts, [&](const ProgramAccount& a) { return a.card == t.accounts.front().card; });
  if (together == 0 || t.accounts.empty() || !one_card || ranks_of(t.processes) > 1) return;
  ProgramAccount& most = *std::ranges::max_element(t.accounts, {}, own);
  most.others_bytes = std::max(most.others_bytes, together - std::min(together, own(most)));
}

// Processes that used a card, or called what only a card answers.
std::vector<ProcessStory> of_a_card(const std::vector<ProcessStory>& stories) {
  std::vector<ProcessStory> all;
  for (const ProcessStory& p : stories)
    if (!p.cards.empty() || !p.functions.empty() || !p.values.empty() || !p.static_runtimes.empty()) all.push_back(p);
  return all;
}

std::vector<ProgramAccount> accounts_of(const std::vector<ProcessStory>& processes) {
  std::vector<ProgramAccount> all;
  for (const ProcessStory& p : processes)
    for (const ProgramAccount& card : p.cards) {
      all.push_back(card);
      const bool has_more_steps = !p.end.empty() && !p.ended_itself;  // a card skips only the first ones
      if (has_more_steps) all.back().before_update.reset();
    }
  return all;
}

void sort_largest_first(std::vector<ProgramAccount>& accounts) {
  const auto order = [](const ProgramAccount& a) {  // equal ones by rank and card
    return std::tuple(~(a.peak_reserved_bytes + a.elsewhere_bytes + a.others_bytes), ~a.peak_reserved_bytes, a.rank, a.card);
  };
  std::ranges::stable_sort(accounts, std::less{}, order);
}

// Nothing that the process did leaves its need without an upper end.
bool is_bounded(const ProcessStory& p) {
  return p.static_runtimes.empty() && !p.tuned && p.open.empty() && std::ranges::none_of(p.functions, &OnlyAcceptedRow::may_take_more);
}

ForecastRankRow row_of_rank(const ProgramAccount& a, const Told& t, bool bounded) {
  ForecastRankRow row;
  row.rank = a.rank;
  row.card = a.card;
  row.peak_allocated_bytes = a.peak_allocated_bytes;
  row.peak_reserved_bytes = a.peak_reserved_bytes;
  row.beside_bytes = t.room.overhead_bytes + a.elsewhere_bytes + a.others_bytes;
  row.needed_bytes = row.peak_reserved_bytes + row.beside_bytes;
  set_interval(row, a, t, bounded);
  row.step_allocated_bytes = a.step_allocated_bytes;
  row.fragmented_bytes = a.peak_reserved_bytes - a.peak_allocated_bytes;
  if (a.whole_steps > 0) row.steps = a.whole_steps;
  row.line = a.peak_line;
  return row;
}

// The program's numbers are those of the rank that needs most, all of one process and of one card; its interval holds every rank's.
void take_from_ranks(ForecastRow& r, const std::vector<ForecastRankRow>& ranks) {
  const ForecastRankRow& most = ranks.front();
  r.peak_allocated_bytes = most.peak_allocated_bytes;
  r.peak_reserved_bytes = most.peak_reserved_bytes;
  r.beside_bytes = most.beside_bytes;
  r.needed_bytes = most.needed_bytes;
  r.steps = most.steps;
  r.fragmented_bytes = most.fragmented_bytes;
  r.line = most.line;
  r.step_allocated_bytes = most.step_allocated_bytes;
  r.low_bytes.reset();
  r.high_bytes = 0;
  for (const ForecastRankRow& rank : ranks) {
    r.low_bytes = std::max(r.low_bytes.value_or(0), *rank.low_bytes);
    r.high_bytes = r.high_bytes && rank.high_bytes ? std::optional(std::max(*r.high_bytes, *rank.high_bytes)) : std::nullopt;
  }
}

std::optional<std::uint64_t> in_all(const std::vector<ProcessStory>& stories, std::uint64_t ProcessStory::*bytes) {
  std::uint64_t sum = 0;
  for (const ProcessStory& p : stories) sum += p.*bytes;
  return sum > 0 ? std::optional(sum) : std::nullopt;
}

void count_what_is_unknown(ForecastRow& r, const std::vector<ProcessStory>& processes) {
  r.unknown_values = r.accepted_functions = 0;
  for (const ProcessStory& p : processes) {
    r.unknown_values += p.unknown_values();
    const auto accepted = std::ranges::count_if(p.functions, [](const OnlyAcceptedRow& f) { return f.what != "refused"; });
    r.accepted_functions = std::max(r.accepted_functions, std::int64_t(accepted));
  }
}

}  // namespace

Overhead overhead_of(const Told& t, int ranks) {
  return overhead_of(t.device, ranks, t.row.source == "measured" ? RunBy::pytorch : RunBy::dry_pytorch);
}

const ProcessStory* ended_by_forecast(const Told& t) {
  const auto ended = std::ranges::find_if(t.processes, [](const ProcessStory& p) { return !p.end.empty() && !p.waits; });
  return ended == t.processes.end() || t.row.steps.value_or(0) == 0 ? nullptr : &*ended;
}

std::optional<Fraction> fraction_of(const Told& t) {
  std::optional<Fraction> least;
  for (const ProgramAccount& a : t.accounts)
    if (a.fraction && (!least || a.fraction->share < least->share)) least = a.fraction;
  return least;
}

std::uint64_t least_of(const Told& t) {
  const std::uint64_t least = t.row.needed_bytes - (t.accounts.front().peak_reserved_bytes - reserved_range(t.accounts.front()).low);
  return std::min(least, t.runs ? t.runs->least_bytes : least);
}

bool own_limit_ended_it(const Told& t) {
  return t.ran_out && !t.went_on && t.row.allowed_bytes && (t.at_least || t.row.peak_reserved_bytes > *t.row.allowed_bytes);
}

bool may_fit(const Told& t) {
  const bool high_decides =
      !t.row.high_bytes || *t.row.high_bytes > t.row.memory_bytes || (t.row.allowed_bytes && (!t.ran_out || t.went_on));
  return t.row.status == Status::oom && !t.at_least && !own_limit_ended_it(t) && high_decides && least_of(t) <= t.row.memory_bytes;
}

void fill(Told& t, const std::vector<ProcessStory>& stories) {
  t.processes = of_a_card(stories);
  t.accounts = accounts_of(t.processes);
  add_neighbours(t, stories);
  sort_largest_first(t.accounts);
  const bool bounded = std::ranges::all_of(t.processes, is_bounded);
  t.ranks.clear();
  for (const ProgramAccount& a : t.accounts) t.ranks.push_back(row_of_rank(a, t, bounded));
  ForecastRow& r = t.row;
  take_from_ranks(r, t.ranks);
  r.allowed_bytes.reset();
  if (const auto fraction = fraction_of(t)) r.allowed_bytes = fraction->of(t.room.memory_bytes);
  r.saved_bytes = t.accounts.front().saved_bytes > 0 ? std::optional(t.accounts.front().saved_bytes) : std::nullopt;
  r.pinned_bytes = in_all(stories, &ProcessStory::pinned_bytes);
  r.managed_bytes = in_all(stories, &ProcessStory::managed_bytes);
  count_what_is_unknown(r, t.processes);
  r.ranks = ranks_of(t.processes);
  if (r.ranks > 1) r.ranks = std::max(r.ranks, std::int64_t(t.ranks.size()));
}

}  // namespace headroom::studies
