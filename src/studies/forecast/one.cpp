// One setting of a program: dry on the card that is asked about, and once more without a limit where that is too small.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <span>
#include <string_view>
#include <tuple>

#include "base/device_names.h"
#include "base/error.h"
#include "base/text.h"
#include "dry/settings.h"
#include "gpu/architecture.h"
#include "studies/forecast/beside.h"
#include "studies/forecast/forecast.h"
#include "studies/forecast/run.h"
#include "studies/forecast/verdict.h"

namespace headroom::studies {

namespace {

// The host's, for NCCL's buffers: those that run here. A rank alone on its host has one peer at least.
int ranks_here(const std::vector<ProcessStory>& processes) {
  int here = 0;
  bool collectives = false;
  for (const ProcessStory& p : processes) {
    here += !p.cards.empty();
    collectives |= p.collectives && p.ranks > 1;
  }
  return collectives ? std::max(2, here) : 1;
}

ForecastTime slowest_rank(const std::vector<ProcessStory>& processes, const std::optional<dry::Rates>& rates, const Device& device) {
  ForecastTime slowest = forecast_time({{}, dry::no_step_seen}, rates, device);
  for (const ProcessStory& p : processes) {
    if (p.cards.empty()) continue;
    ForecastTime time = forecast_time(p.time, rates, device);
    for (ForecastTimeRow& row : time.parts) row.rank = p.rank;
    for (ForecastLaunchRow& row : time.launches_of_step) row.rank = p.rank;
    const bool first_reason = !time.ms && !slowest.ms && p.time.step.has_value() == false && !p.time.why.empty();
    if (first_reason || (time.ms && time.ms > slowest.ms)) slowest = std::move(time);
  }
  return slowest;
}

// A program that was not seen to its end: what it took until then may be too much already; that it fits is not known.
void say_so_far(Told& t) {
  const auto so_far = [&](std::optional<bool>& fits, std::uint64_t low) {
    fits = low > t.room.memory_bytes ? std::optional(false) : std::nullopt;
  };
  so_far(t.row.fits, t.row.low_bytes.value_or(t.row.needed_bytes));
  for (ForecastRankRow& rank : t.ranks) so_far(rank.fits, rank.low_bytes.value_or(rank.needed_bytes));
}

// A training program that ends by itself before its second step may have been ended by a value that is another one on the card. The lines
// that read such values last; empty: it is not so.
std::string ended_early_by(const DryRun& run) {
  if (!run.ended_well() || run.ended.asked || run.steps() > 1) return "";
  for (const ProcessStory& p : run.processes)
    if ((run.steps() == 1 || p.made_optimizer) && p.end.empty() && !p.unknown_lines.empty()) return joined(p.unknown_lines, " and ");
  return "";
}

// Numbers for a float that only the card knows, where the usual one ends a program: `while loss > 3`, `while share < 0.5`.
constexpr const char* other_floats[] = {"100", "0.01"};

// Another run, of a program that such a number kept going.
std::optional<DryRun> with_another_float(DryRunAsked& asked, const DryRun& run, const Host& host, Told& t) {
  for (const char* number : other_floats) {
    if (t.stop(host.stop(), fmt::format("the run with {} for a float that only the card knows", number))) return std::nullopt;
    DryRunAsked again = asked;
    again.settings.push_back(fmt::format("{}={}", dry::float_variable, number));
    again.output = [](std::string_view) {};
    DryRun other = run_dry(again);
    if (t.stop(other.ended.asked, fmt::format("the run with {} for a float that only the card knows", number))) return std::nullopt;
    if (other.steps() <= run.steps() && !other.ran_out()) continue;
    t.other_float = number;
    asked.settings = again.settings;
    return other;
  }
  return std::nullopt;
}

}  // namespace

Room room_of_program(const Device& device, std::optional<std::uint64_t> asked, int ranks) {
  if (!device.bus.empty() && !asked) asked = device.total_bytes;  // a card that is here is asked about as if it were empty
  return room_of(device, asked, ranks, RunBy::dry_pytorch);
}

dry::Dry dry_of(const Device& device, const Room& room, int cards) {
  dry::Dry d;
  d.cards = cards;
  dry::Card& c = d.card;
  c.name = name_by_driver(device);
  c.memory_bytes = room.memory_bytes;
  c.context_bytes = room.overhead_bytes;
  c.libraries_bytes = overhead_of(device, 1, RunBy::dry_pytorch).measured ? 0 : pytorch_libraries_bytes;
  c.sm = std::uint64_t(device.sm);
  c.units = std::uint64_t(device.units);
  c.shared_bytes = std::uint64_t(architecture_of(device.sm).shared_bytes);
  const Ceilings& k = device.ceilings;
  if (k.copy_bytes_per_s > 0) c.bytes_per_s = k.copy_bytes_per_s;
  if (k.bf16_flops > 0) c.half_flops = k.bf16_flops;
  if (k.fp32_flops > 0) c.single_flops = k.fp32_flops;
  if (k.link_bytes_per_s > 0) c.link_bytes_per_s = k.link_bytes_per_s;
  return d;
}

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

// The first line of each guess from which sizes follow. Draws are others in each run, so they are said only where no other size is guessed.
std::vector<Routing> routing_of(const std::vector<ProcessStory>& processes) {
  std::vector<Routing> all;
  for (const ProcessStory& p : processes)
    for (const Routing& one : p.routed)
      if (std::ranges::find(all, one.guessed, &Routing::guessed) == all.end()) all.push_back(one);
  if (std::ranges::any_of(all, [](const Routing& one) { return one.guessed != Guessed::draws && !is_of_numbers(one); }))
    std::erase_if(all, [](const Routing& one) { return one.guessed == Guessed::draws; });
  return all;
}

std::pair<std::uint64_t, std::uint64_t> allocated_range(const ProgramAccount& a) {
  const auto [low, high] =
      a.spread ? std::pair(a.spread->low.allocated, a.spread->high.allocated) : std::pair(a.peak_allocated_bytes, a.peak_allocated_bytes);
  return {a.before_update ? std::min(low, a.before_update->allocated) : low, high};
}

// The number for a run without a limit from the error on that ended a run: a program that halves its batch and still fails needs what its last batch does.
// A fraction of its own does not hold without a limit, so its errors do not come again.
std::uint64_t unlimited_from(const DryRun& ended) {
  int errors = 1;
  for (const ProcessStory& p : ended.processes) {
    if (std::ranges::any_of(p.cards, [](const ProgramAccount& a) { return a.fraction.has_value(); })) return 1;
    errors = std::max(errors, p.raised);
  }
  return std::uint64_t(errors);
}

bool share_a_card(const DryRun& run) {
  return std::ranges::any_of(run.processes, [](const ProcessStory& p) {
    return std::ranges::any_of(p.cards, [](const ProgramAccount& a) { return a.others_bytes > 0; });
  });
}

// A launcher's processes that are no ranks of one program have contexts without NCCL. They ran with larger ones, which counts where one process met
// another's on its card: then they run again.
void run_as_no_ranks(DryRunAsked& asked, DryRun& run, const Room& room, const Host& host, Told& t) {
  constexpr const char* what = "the run with contexts of processes that are no ranks";
  asked.dry.card.context_bytes = room.overhead_bytes;
  if (!share_a_card(run) || run.ended.asked || t.stop(host.stop(), what)) return;
  DryRunAsked again = asked;
  again.output = [](std::string_view) {};
  DryRun other = run_dry(again);
  if (!t.stop(other.ended.asked, what) && other.any_bytes()) run = std::move(other);
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

// A program as it ran, and how many more of its runs may go on at once.
struct AsItRan {
  DryRunAsked asked;
  int at_once = 1;

  DryRunAsked with(const char* variable, const std::string& value) const {
    DryRunAsked other = asked;
    other.settings.push_back(fmt::format("{}={}", variable, value));
    other.output = [](std::string_view) {};
    return other;
  }
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

// Sizes follow from which experts tokens go to. The run sent each token to any of them; the interval has room for two others: as many tokens to
// each, and all to the same (the other experts then have no gradient). Of an unknown mask half is true, and in these runs nothing, then all, then nearly
// all, of each mask another share: a block of one size does not serve the next, so more is reserved. A program that fails where nothing is true, or nearly
// all, has no such end, and keeps its others; where all is true it fails on a card too, and nearly all of it is the end. Of values that all differ, the
// other run has all the same. Numbers that a branch compares fall in one run and rise in the next: so that each is the best until then, or none. Numbers that
// are held against a threshold are above it in one run, and below it in another: the observer asks for these runs, and for others (improving.py).
void add_routing(Told& t, const AsItRan& program, const Host& host) {
  constexpr std::array values{"random", "balanced", "worst", "nearly"}, ways{"", "+falls", "+rises", "+falls"};
  const auto has = [&](Guessed one) { return std::ranges::find(t.routing, one, &Routing::guessed) != t.routing.end(); };
  const bool fall = has(Guessed::falls), only_fall = fall && std::ranges::all_of(t.routing, is_of_numbers);
  const bool counts =
      !only_fall &&
      std::ranges::all_of(t.routing, [](const Routing& one) {  // with experts too, the first other run has as many tokens to each
        return one.guessed != Guessed::experts && one.guessed != Guessed::draws && one.guessed != Guessed::paddings &&
               one.guessed != Guessed::searches;
      });
  std::vector<Another> others;
  for (std::size_t i = 1; i < (only_fall ? 3 : values.size()); ++i) {
    const std::string how = words_of_run(t.routing, i);
    if (how.empty()) continue;
    others.push_back({fmt::format("{}{}", values[only_fall ? 0 : i], fall ? ways[i] : ""),
                      {.how = how, .failed = {}, .bounds = i == 3 || (i == 1 && counts)},
                      i == 3 && counts});
    if (only_fall && i == 1)
      others.push_back({"random+shares", {.how = "with each number, below 1, smaller than the one before"}, false, true});
  }
  for (const RunAsked& one : runs_asked(t.processes)) others.push_back({one.value, {.how = one.how}, false, one.instead});
  const std::string what = fmt::format("the runs with {}", words_of(t.routing.front().guessed).others);
  add_runs(t, program, dry::routing_variable, others, what.c_str(), host, t.guess_runs);
}

// PyTorch's allocator gives memory back that a second stream used once that stream is done with it. By the clock it was done sooner or later; of a
// faster card at once, and of any card when the program has waited for it. So with what PyTorch holds for collectives until it has looked.
void add_late(Told& t, const AsItRan& program, const Host& host) {
  const std::array<Another, 2> others{
      {{"at once", {"with streams that end at once", "", false}}, {"late", {"with streams that end late", "", false}}}};
  add_runs(t, program, dry::events_variable, others, "the runs in which streams end early and late", host, t.late_runs);
}

// The run that says what a program needs which does not fit. What the first run has shown stays known, whatever becomes of this one.
DryRun with_unlimited_memory(DryRunAsked& asked, DryRun first, const Host& host, Told& t) {
  constexpr const char* what = "the run with unlimited memory that says how much it needs";
  t.at_least = true;
  if (t.stop(host.stop(), what)) return first;
  asked.dry.card.unlimited = unlimited_from(first);
  asked.output = [](std::string_view) {};
  DryRun whole = run_dry(asked);
  t.stop(whole.ended.asked, what);
  t.at_least = !whole.ended_well();  // what comes after its end is not known
  if (t.at_least && !t.stopped) t.ended = whole.how_it_ended();
  return t.at_least && whole.most_reserved() <= first.most_reserved() ? std::move(first) : std::move(whole);
}

// Says which ranks of a program do not fit, if it was not seen to its end without a limit.
void say_what_ran_out(Told& t) {
  for (std::size_t i = 0; i < t.ranks.size(); ++i) {
    const ProgramAccount& a = t.accounts[i];
    const bool too_much = a.ran_out || t.ranks[i].low_bytes.value_or(0) > t.room.memory_bytes ||
                          (a.fraction && a.peak_reserved_bytes > a.fraction->of(t.room.memory_bytes));
    if (too_much || t.at_least) t.ranks[i].fits = too_much ? std::optional(false) : std::nullopt;
  }
}

void say_time(Told& t, ForecastTime time) {
  t.time = std::move(time);
  t.row.ms = t.time.ms;
  t.row.ms_low = t.time.ms_low;
  t.row.ms_high = t.time.ms_high;
  t.row.time_why = t.time.why;
  t.row.time_limit = t.time.limit;
}

// A program that was not seen to its end has no upper end.
void say_what_fits(Told& t, bool too_small) {
  if (!t.short_by.empty() || t.at_least) {
    t.row.high_bytes.reset();
    for (ForecastRankRow& rank : t.ranks) rank.high_bytes.reset();
  }
  const bool allowed = !t.row.allowed_bytes || std::ranges::all_of(t.ranks, [](const ForecastRankRow& rank) { return rank.fits != false; });
  t.row.fits = !too_small && allowed && t.row.high_bytes.value_or(t.row.needed_bytes) <= t.room.memory_bytes;
}

void say_how_it_ended(Told& t, const DryRun& run, bool too_small, int cards) {
  if (!too_small && !run.ended_well() && !t.stopped) {
    t.ended = run.how_it_ended();
    t.advice = advice_on(run, cards);
  }
  for (const ProcessStory& p : run.processes)
    if (p.waits) t.waits = p.end;
  t.row.to_its_end = !ended_by_forecast(t) && run.ended_well() && !t.at_least;
}

void say_ran_out(Told& t) {
  t.row.status = Status::oom;
  t.row.why = fmt::format("runs out {}{}", where(*t.ran_out), t.not_run.empty() ? "" : fmt::format("; {} was stopped", t.not_run));
  if (own_limit_ended_it(t)) t.row.why += fmt::format("; {}", own_limit(t));
  if (t.at_least || t.row.allowed_bytes) say_what_ran_out(t);
  t.row.line = t.ran_out->own_line.empty() ? t.ran_out->line : t.ran_out->own_line;
}

void say_status(Told& t, const DryRun& run, bool too_small) {
  if (too_small) {
    say_ran_out(t);
  } else if (t.stopped) {
    t.row.status = Status::interrupted;
    t.row.why = t.not_run.empty() ? "stopped before its end" : fmt::format("{} was stopped", t.not_run);
    say_so_far(t);
  } else if (!run.ended_well()) {
    t.row.status = Status::failed;
    t.row.why = t.advice.empty() ? t.ended : fmt::format("{}; {}", t.ended, t.advice);
    say_so_far(t);
  } else if (t.row.fits == false) {
    t.row.status = Status::oom;
    t.row.why = may_fit(t) ? fmt::format("may need {}, which is more than there is",
                                         bytes_in_words(double(t.row.high_bytes.value_or(t.row.needed_bytes))))
                           : misfit(t.room, t.row.peak_reserved_bytes);
  } else if (!t.short_by.empty()) {
    t.row.why = early(t);
  }
}

}  // namespace

Told forecast_one(const Forecast& a, const std::vector<std::string>& program, const Host& host, const ProgramOutput& output,
                  const std::vector<std::string>& change) {
  Told t;
  t.device = a.device;
  const int told = ranks_told(program), cards = a.gpus > 0 ? a.gpus : told;
  t.started = told;
  t.room = room_of_program(a.device, a.memory_bytes, told);
  t.row.program = as_typed_in_a_shell(program);
  t.row.device = a.device.name;
  t.row.memory_bytes = t.room.memory_bytes;
  OneHost one = one_host_of(program);
  DryRunAsked asked{.program = std::move(one.program),
                    .dry = dry_of(a.device, t.room, cards),
                    .steps = a.steps,
                    .rates = pytorch::rates_of(a.device, a.host_speed),
                    .settings = change,
                    .output = output};
  if (one.hosts > 1) asked.settings.push_back(fmt::format("{}={}", dry::hosts_variable, one.hosts));
  const auto doing = [&](const char* what) {
    return [&host, what](std::int64_t steps, std::uint64_t live) {
      host.progress(0, fmt::format("{}: {}, {} allocated", what, counted(std::uint64_t(steps), "step"), bytes_in_words(double(live))));
    };
  };
  asked.progress = doing("running dry");
  DryRun run = run_dry(asked);
  const auto room_of = [&a](const DryRun& r) { return room_of_program(a.device, a.memory_bytes, ranks_here(r.processes)); };
  if (ranks_here(run.processes) < told) run_as_no_ranks(asked, run, room_of(run), host, t);
  if (!ended_early_by(run).empty() && !std::getenv(dry::float_variable)) {
    asked.progress = doing("ended after one step; once more with another value");
    if (auto other = with_another_float(asked, run, host, t)) run = std::move(*other);
  }
  const bool too_small = !run.ended_well() && !run.ended.asked && run.ran_out();
  t.ran_out = run.where_it_ran_out();
  t.went_on = t.ran_out && t.ran_out->raised && run.ended_well();
  t.stop(run.ended.asked, "");
  if (!run.any_bytes()) refuse_without_bytes(run, program, cards);
  if (too_small) asked.progress = doing("does not fit; once more with unlimited memory");
  if (too_small) run = with_unlimited_memory(asked, std::move(run), host, t);
  t.room = room_of(run);
  fill(t, run.processes);
  if (auto routing = routing_of(t.processes); !routing.empty() && !t.stopped && run.ended_well() && !std::getenv(dry::routing_variable)) {
    t.routing = std::move(routing);
    asked.progress = doing(words_of(t.routing.front().guessed).others);
    add_routing(t, {asked, runs_at_once(run)}, host);
  }
  if (std::ranges::any_of(t.processes, &ProcessStory::late_events) && !t.stopped && run.ended_well() &&
      !std::getenv(dry::events_variable)) {
    asked.progress = doing("streams that end early and late");
    add_late(t, {asked, runs_at_once(run)}, host);
  }
  say_time(t, slowest_rank(t.processes, asked.rates, a.device));
  t.row.host_bytes = std::uint64_t(run.ended.host_peak_bytes);
  t.short_by = ended_early_by(run);
  say_what_fits(t, too_small);
  say_how_it_ended(t, run, too_small, cards);
  say_status(t, run, too_small);
  return t;
}

}  // namespace headroom::studies
