// One setting of a program: dry on the card that is asked about, and once more without a limit where that is too small.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/device_names.h"
#include "base/error.h"
#include "base/text.h"
#include "dry/settings.h"
#include "gpu/architecture.h"
#include "studies/forecast/beside.h"
#include "studies/forecast/forecast.h"
#include "studies/forecast/other_runs.h"
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

Room room_of_program(const Device& device, std::optional<std::uint64_t> asked, int ranks, RunBy program) {
  if (!device.bus.empty() && !asked) asked = device.total_bytes;  // a card that is here is asked about as if it were empty
  return room_of(device, asked, ranks, program);
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

auto progress_of(const Host& host, const char* doing) {
  return [&host, doing](std::int64_t steps, std::uint64_t live) {
    host.progress(0, fmt::format("{}: {}, {} allocated", doing, counted(std::uint64_t(steps), "step"), bytes_in_words(double(live))));
  };
}

DryRunAsked first_run(const Forecast& a, const std::vector<std::string>& program, const Room& room, int cards, const Host& host) {
  OneHost one = one_host_of(program);
  DryRunAsked asked{.program = std::move(one.program),
                    .dry = dry_of(a.device, room, cards),
                    .steps = a.steps,
                    .rates = pytorch::rates_of(a.device, a.host_speed),
                    .settings = {},
                    .progress = progress_of(host, "running dry")};
  if (one.hosts > 1) asked.settings.push_back(fmt::format("{}={}", dry::hosts_variable, one.hosts));
  return asked;
}

// Runs with other outcomes of what the run had to guess, and with streams that are done at other times. Who set the guess asks for that run alone.
void add_other_runs(Told& t, const DryRunAsked& asked, const DryRun& run, const Host& host) {
  const auto another = [&](const char* doing) {
    AsItRan again{asked, runs_at_once(run)};
    again.asked.progress = progress_of(host, doing);
    return again;
  };
  const auto may_run = [&](const char* set_by_hand) { return !t.stopped && run.ended_well() && !std::getenv(set_by_hand); };
  if (auto routing = routing_of(t.processes); !routing.empty() && may_run(dry::routing_variable)) {
    t.routing = std::move(routing);
    add_routing(t, another(words_of(t.routing.front().guessed).others), host);
  }
  if (std::ranges::any_of(t.processes, &ProcessStory::late_events) && may_run(dry::events_variable))
    add_late(t, another("streams that end early and late"), host);
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
  DryRunAsked asked = first_run(a, program, t.room, cards, host);
  asked.settings.insert(asked.settings.begin(), change.begin(), change.end());
  asked.output = output;
  DryRun run = run_dry(asked);
  const auto room_of = [&a](const DryRun& r) { return room_of_program(a.device, a.memory_bytes, ranks_here(r.processes)); };
  if (ranks_here(run.processes) < told) run_as_no_ranks(asked, run, room_of(run), host, t);
  if (!ended_early_by(run).empty() && !std::getenv(dry::float_variable)) {
    asked.progress = progress_of(host, "ended after one step; once more with another value");
    if (auto other = with_another_float(asked, run, host, t)) run = std::move(*other);
  }
  const bool too_small = !run.ended_well() && !run.ended.asked && run.ran_out();
  t.ran_out = run.where_it_ran_out();
  t.went_on = t.ran_out && t.ran_out->raised && run.ended_well();
  t.stop(run.ended.asked, "");
  if (!run.any_bytes()) refuse_without_bytes(run, program, cards);
  if (too_small) {
    asked.progress = progress_of(host, "does not fit; once more with unlimited memory");
    run = with_unlimited_memory(asked, std::move(run), host, t);
  }
  t.room = room_of(run);
  fill(t, run.processes);
  add_other_runs(t, asked, run, host);
  say_time(t, slowest_rank(t.processes, asked.rates, a.device));
  t.row.host_bytes = std::uint64_t(run.ended.host_peak_bytes);
  t.short_by = ended_early_by(run);
  say_what_fits(t, too_small);
  say_how_it_ended(t, run, too_small, cards);
  say_status(t, run, too_small);
  return t;
}

}  // namespace headroom::studies
