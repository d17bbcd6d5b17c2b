#include "studies/forecast/other_runs.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "dry/settings.h"
#include "studies/forecast/beside.h"
#include "studies/forecast/verdict.h"

namespace headroom::studies {

namespace {

// A guess about numbers that a program compares, which no run with other masks, experts or draws is about.
bool is_of_numbers(const Routing& one) {
  return one.guessed == Guessed::falls || one.guessed == Guessed::levels || one.guessed == Guessed::jumps || one.guessed == Guessed::orders;
}

// The runs that the processes ask for, each once.
std::vector<RunAsked> runs_asked(const std::vector<ProcessStory>& processes) {
  std::vector<RunAsked> all;
  for (const ProcessStory& p : processes)
    for (const RunAsked& one : p.runs)
      if (std::ranges::find(all, one.value, &RunAsked::value) == all.end()) all.push_back(one);
  return all;
}

std::pair<std::uint64_t, std::uint64_t> allocated_range(const ProgramAccount& a) {
  const auto [low, high] =
      a.spread ? std::pair(a.spread->low.allocated, a.spread->high.allocated) : std::pair(a.peak_allocated_bytes, a.peak_allocated_bytes);
  return {a.before_update ? std::min(low, a.before_update->allocated) : low, high};
}

// Widens the need by another run of the program, which ended well.
void take_in(Told& t, const DryRun& run) {
  Runs& all = *t.runs;
  Told other;
  other.device = t.device;
  other.room = t.room;
  other.row.memory_bytes = t.row.memory_bytes;
  fill(other, run.processes);
  all.least_bytes = std::min(all.least_bytes, least_of(other));
  all.low_bytes = std::min(all.low_bytes, *other.row.low_bytes);
  const auto [allocated_low, allocated_high] = allocated_range(other.accounts.front());
  all.allocated_low_bytes = std::min(all.allocated_low_bytes, allocated_low);
  all.allocated_high_bytes = std::max(all.allocated_high_bytes, allocated_high);
  if (!other.row.high_bytes) all.high_bytes.reset();
  if (all.high_bytes) all.high_bytes = std::max(*all.high_bytes, *other.row.high_bytes);
  for (ForecastRankRow& rank : t.ranks)
    for (const ForecastRankRow& same : other.ranks) {
      if (same.rank != rank.rank || same.card != rank.card) continue;
      rank.low_bytes = std::min(*rank.low_bytes, *same.low_bytes);
      rank.high_bytes = rank.high_bytes && same.high_bytes ? std::optional(std::max(*rank.high_bytes, *same.high_bytes)) : std::nullopt;
      rank.fits = rank.high_bytes.value_or(rank.needed_bytes) <= t.room.memory_bytes;
    }
}

// Nothing bounds the need from above: not of the program, of a rank, or of a step.
void take_back_upper_ends(Told& t) {
  t.runs->high_bytes.reset();
  for (ForecastRankRow& rank : t.ranks) {
    rank.high_bytes.reset();
    rank.fits = rank.needed_bytes <= t.room.memory_bytes;
  }
  for (ProgramAccount& a : t.accounts)
    for (ForecastStepRow& step : a.steps) step.reserved_high_bytes.reset();
}

// Another run of the program, and how the answer says it.
struct Another {
  std::string value;     // the value of the variable that makes it another one
  OtherRun said;         // `bounds`: where it fails, the runs that did not still bound the need
  bool stands = false;   // it bounds the need where the runs before it failed
  bool instead = false;  // it is made only where the one before it failed, in whose place it is
};

// Runs it, once more without a limit where it runs out.
DryRun run_other(const DryRunAsked& asked) {
  DryRun run = run_dry(asked);
  if (run.ended_well() || run.ended.asked || !run.ran_out() || asked.dry.card.unlimited != 0) return run;
  DryRunAsked again = asked;
  again.dry.card.unlimited = unlimited_from(run);
  return run_dry(again);
}

// The runs of each value that are surely made, as far as they can be made side by side.
std::vector<std::optional<DryRun>> made_side_by_side(const AsItRan& program, const char* variable, std::span<const Another> others,
                                                     const Host& host) {
  std::vector<DryRunAsked> asked;
  for (const Another& other : others)
    if (!other.instead) asked.push_back(program.with(variable, other.value));
  auto made = run_side_by_side(asked, program.at_once, host.stop, run_other);
  for (std::size_t i = 0; i < others.size(); ++i)
    if (others[i].instead) made.insert(made.begin() + std::ptrdiff_t(i), std::nullopt);
  return made;
}

// Runs the program again with each value of a variable, and takes these runs into the need; those that were made are added to `done`.
void add_runs(Told& t, const AsItRan& program, const char* variable, std::span<const Another> others, const char* what, const Host& host,
              std::vector<OtherRun>& done) {
  if (!t.runs) {
    t.runs = Runs{.least_bytes = least_of(t), .low_bytes = t.row.low_bytes.value_or(t.row.needed_bytes), .high_bytes = t.row.high_bytes};
    std::tie(t.runs->allocated_low_bytes, t.runs->allocated_high_bytes) = allocated_range(t.accounts.front());
  }
  std::vector<std::size_t> open;  // the runs of `done` whose failure leaves no upper end
  auto made = made_side_by_side(program, variable, others, host);
  for (std::size_t i = 0; i < others.size(); ++i) {
    const auto& [value, said, stands, instead] = others[i];
    if (instead && (done.empty() || done.back().failed.empty())) continue;
    if (!made[i] && t.stop(host.stop(), what)) {
      t.runs->open = true;
      break;
    }
    const DryRun run = made[i] ? std::move(*made[i]) : run_other(program.with(variable, value));
    if (t.stop(run.ended.asked, what)) {
      t.runs->open = true;
      continue;
    }
    const bool well = run.ended_well() && run.any_bytes();
    if (instead && well) {
      std::erase(open, done.size() - 1);
      done.pop_back();
    } else if (instead) {
      continue;
    }
    done.push_back(said);
    if (well) {
      take_in(t, run);
      if (!stands) continue;
      for (const std::size_t one : open) done[one].bounds = true;
      open.clear();
      continue;
    }
    done.back().failed = run.ended_well() ? "it used no card" : run.how_it_ended();
    if (!said.bounds) open.push_back(done.size() - 1);
  }
  t.runs->open |= !open.empty();
  if (t.runs->open) take_back_upper_ends(t);
  t.row.low_bytes = t.runs->low_bytes;
  t.row.high_bytes = t.runs->high_bytes;
}

// Whether the other runs are those of a mask: none of it true, all, nearly all. With experts the first of them has as many tokens to each.
bool is_of_counts(const Routing& one) {
  return one.guessed != Guessed::experts && one.guessed != Guessed::draws && one.guessed != Guessed::paddings &&
         one.guessed != Guessed::searches;
}

// Where nothing but the numbers that a branch compares is a guess: each is the best until then in one run, and none in the other. Where numbers
// cannot fall by one each time, they fall by shares.
std::vector<Another> runs_of_numbers(const std::vector<Routing>& routing) {
  return {{"random+falls", {.how = words_of_run(routing, 1), .bounds = false}},
          {"random+shares", {.how = "with each number, below 1, smaller than the one before"}, false, true},
          {"random+rises", {.how = words_of_run(routing, 2), .bounds = false}}};
}

// Sizes follow from which experts tokens go to. The first run sent each token to any of them; the interval has room for two others: as many tokens
// to each, and all to the same (the other experts then have no gradient). Of an unknown mask half is true, and in these runs nothing, then all, then
// nearly all, of each mask another share: a block of one size does not serve the next, so more is reserved. A program that fails where nothing is
// true, or nearly all, has no such end, and keeps its others; where all is true it fails on a card too, and nearly all of it is the end. Of values
// that all differ, the other run has all the same. Numbers that a branch compares fall and rise in these runs, too.
std::vector<Another> runs_of_sizes(const std::vector<Routing>& routing, bool numbers_fall) {
  struct Kind {
    const char *sizes, *numbers;
  };
  constexpr std::array<Kind, 3> kinds{{{"balanced", "+falls"}, {"worst", "+rises"}, {"nearly", "+falls"}}};
  const bool counts = std::ranges::all_of(routing, is_of_counts);
  std::vector<Another> runs;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const std::string how = words_of_run(routing, i + 1);
    if (how.empty()) continue;
    const bool none = i == 0, nearly_all = i == 2;
    runs.push_back({.value = fmt::format("{}{}", kinds[i].sizes, numbers_fall ? kinds[i].numbers : ""),
                    .said = {.how = how, .bounds = nearly_all || (none && counts)},
                    .stands = nearly_all && counts});
  }
  return runs;
}

// Runs in which what was guessed comes out otherwise; and those that the observer asks for, as of numbers that are held against a threshold
// (improving.py).
std::vector<Another> runs_otherwise(const std::vector<Routing>& routing, const std::vector<ProcessStory>& processes) {
  const bool numbers_fall = std::ranges::find(routing, Guessed::falls, &Routing::guessed) != routing.end();
  const bool only_numbers = numbers_fall && std::ranges::all_of(routing, is_of_numbers);
  std::vector<Another> runs = only_numbers ? runs_of_numbers(routing) : runs_of_sizes(routing, numbers_fall);
  for (const RunAsked& one : runs_asked(processes)) runs.push_back({one.value, {.how = one.how}, false, one.instead});
  return runs;
}

}  // namespace

DryRunAsked AsItRan::with(const char* variable, const std::string& value) const {
  DryRunAsked other = asked;
  other.settings.push_back(fmt::format("{}={}", variable, value));
  other.output = [](std::string_view) {};
  return other;
}

std::uint64_t unlimited_from(const DryRun& ended) {
  int errors = 1;
  for (const ProcessStory& p : ended.processes) {
    if (std::ranges::any_of(p.cards, [](const ProgramAccount& a) { return a.fraction.has_value(); })) return 1;
    errors = std::max(errors, p.raised);
  }
  return std::uint64_t(errors);
}

std::vector<Routing> routing_of(const std::vector<ProcessStory>& processes) {
  std::vector<Routing> all;
  for (const ProcessStory& p : processes)
    for (const Routing& one : p.routed)
      if (std::ranges::find(all, one.guessed, &Routing::guessed) == all.end()) all.push_back(one);
  if (std::ranges::any_of(all, [](const Routing& one) { return one.guessed != Guessed::draws && !is_of_numbers(one); }))
    std::erase_if(all, [](const Routing& one) { return one.guessed == Guessed::draws; });
  return all;
}

void add_routing(Told& t, const AsItRan& program, const Host& host) {
  const std::vector<Another> others = runs_otherwise(t.routing, t.processes);
  const std::string what = fmt::format("the runs with {}", words_of(t.routing.front().guessed).others);
  add_runs(t, program, dry::routing_variable, others, what.c_str(), host, t.guess_runs);
}

void add_late(Told& t, const AsItRan& program, const Host& host) {
  const std::array<Another, 2> others{
      {{"at once", {"with streams that end at once", "", false}}, {"late", {"with streams that end late", "", false}}}};
  add_runs(t, program, dry::events_variable, others, "the runs in which streams end early and late", host, t.late_runs);
}

}  // namespace headroom::studies
