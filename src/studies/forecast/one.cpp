// One setting of a program: dry on the card that is asked about, and once more without a limit where that is too small.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <tuple>

#include "base/device_names.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "dry/settings.h"
#include "gpu/architecture.h"
#include "studies/forecast/forecast.h"

namespace headroom::studies {

namespace {

int ranks_of(const std::vector<ProcessStory>& processes) {
  int ranks = 0;
  for (const ProcessStory& p : processes) ranks = std::max(ranks, p.collectives ? p.ranks : 1);
  return std::max(1, ranks);
}

// The host's, for NCCL's buffers: those that run here.
int ranks_here(const std::vector<ProcessStory>& processes) {
  int here = 0;
  bool collectives = false;
  for (const ProcessStory& p : processes) {
    here += !p.cards.empty();
    collectives |= p.collectives && p.ranks > 1;
  }
  return collectives ? std::max(1, here) : 1;
}

std::string first_words_of(const std::vector<std::string>& program) { return program.empty() ? "" : program[0]; }

[[noreturn]] void refuse_without_bytes(const DryRun& run, const Forecast& a) {
  const std::string name = first_words_of(a.program);
  if (run.ended.asked)
    throw Error(Code::interrupted, fmt::format("{} before '{}' used a card: nothing is known of it yet", stopped_by(), name));
  for (const ProcessStory& p : run.processes)
    if (!p.static_runtimes.empty())
      throw Error(Code::unsupported,
                  fmt::format("'{}' brings a CUDA runtime of its own, in {}: its calls cannot be answered; use a build that "
                              "links libcudart.so",
                              name, joined(p.static_runtimes)));
  const auto without_cuda = std::ranges::find_if(run.processes, [](const ProcessStory& p) { return !p.torch_with_cuda; });
  if (without_cuda != run.processes.end() || run.says("not compiled with cuda"))
    throw Error(
        Code::unsupported,
        fmt::format("its PyTorch{} is a build without CUDA, which has no CUDA allocator; install the CUDA build, which needs no GPU: "
                    "pip install torch --index-url https://download.pytorch.org/whl/cu130",
                    without_cuda == run.processes.end() ? "" : " " + without_cuda->torch));
  if (run.ended.exit_code != 0) {
    const std::string last = run.last_line();
    const char* const advice = last.ends_with("No module named 'torch'") ? "; name the Python that has PyTorch, as .venv/bin/python" : "";
    throw Error(Code::io, fmt::format("'{}' ended before it used a card, with exit code {}{}{}", name, run.ended.exit_code,
                                      last.empty() ? "" : ": " + shortened(last, 160), advice));
  }
  const auto with_torch = std::ranges::find_if(run.processes, [](const ProcessStory& p) { return !p.torch.empty(); });
  if (with_torch != run.processes.end())
    throw Error(
        Code::unsupported,
        fmt::format("'{}' ran to its end with PyTorch {} and allocated nothing on a card: it computed on the CPU; move its model and "
                    "data to the card, as by .to('cuda'), or give it the option that does",
                    name, with_torch->torch));
  throw Error(
      Code::unsupported,
      fmt::format("'{}' ran to its end and allocated nothing on a card: it did not import PyTorch (python3 -I and -E hide that), or "
                  "what it calls is linked statically; give the command that trains",
                  name));
}

bool ended_well(const DryRun& run) {
  const bool waits = std::any_of(run.processes.begin(), run.processes.end(), [](const auto& p) { return p.waits; });
  return !waits && (run.ended.exit_code == 0 || run.enough);
}

// PyTorch's error ended it. Of a program that writes elsewhere (a log, a closed standard error) the exit code says enough, if it shows no other error.
bool ran_out(const DryRun& run) {
  bool noted = false, raised = false;
  for (const ProcessStory& p : run.processes)
    for (const ProgramAccount& a : p.cards) {
      noted |= a.ran_out.has_value();
      raised |= a.ran_out && a.ran_out->raised;
    }
  const bool silently = raised && run.ended.exit_code != 0 && run.ended.by.empty() && !run.shows_exception();
  return noted && (run.says("out of memory") || run.says("OutOfMemoryError") || silently);
}

std::optional<RanOut> where_it_ran_out(const DryRun& run) {
  std::optional<RanOut> found;
  for (const ProcessStory& p : run.processes)
    for (const ProgramAccount& a : p.cards)
      if (a.ran_out && (!found || a.ran_out->raised)) found = a.ran_out;
  return found;
}

std::string how_it_ended(const DryRun& run) {
  for (const ProcessStory& p : run.processes)
    if (p.waits) return p.end;
  const std::string last = run.last_line();
  return fmt::format("{}{}", run.ended.by.empty() ? fmt::format("exit code {}", run.ended.exit_code) : run.ended.by,
                     last.empty() ? "" : ": " + shortened(last, 120));
}

ForecastTime slowest_rank(const std::vector<ProcessStory>& processes, const std::optional<dry::Rates>& rates, const Device& device) {
  ForecastTime slowest = forecast_time({{}, "the program took no optimizer step that was seen"}, rates, device);
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

std::string where(const RanOut& r) {
  std::vector<std::string> parts{fmt::format("step {}", r.step)};
  if (!r.phase.empty()) parts.push_back(r.phase);
  if (const std::string& line = r.own_line.empty() ? r.line : r.own_line; !line.empty()) parts.push_back(line);
  return joined(parts);
}

// The subject of the answer: a program, the largest of its ranks, or of processes and cards that are no ranks.
std::string who_needs(const Told& t) {
  if (t.row.ranks > 1) return fmt::format("the largest of {} ranks needs", t.row.ranks);
  if (t.accounts.size() < 2) return "it needs";
  const bool together = t.accounts.front().others_bytes > 0;
  const bool cards = std::ranges::all_of(t.accounts, [&](const ProgramAccount& a) { return a.pid == t.accounts.front().pid; });
  if (together) return "its processes together need";
  return fmt::format("the largest of {} {} needs", t.accounts.size(), cards ? "cards" : "processes");
}

// The least that it may need: the bytes beside the tensors as they are in needed_bytes.
std::uint64_t least_of(const Told& t) {
  const std::uint64_t least = t.row.needed_bytes - (t.accounts.front().peak_reserved_bytes - reserved_range(t.accounts.front()).low);
  return std::min(least, t.routing ? t.routing->least_bytes : least);
}

// What decides where the need lies between its ends.
std::string deciding(const Told& t) {
  const ProgramAccount& a = t.accounts.front();
  std::vector<std::string> parts;
  if (a.pool_slack_bytes > 0) parts.emplace_back("what the driver's pool keeps");
  if (a.spread && a.spread->low.reserved < a.spread->high.reserved) parts.emplace_back("the layout of addresses");
  if (a.unsure_bytes > 0) parts.emplace_back("the size of workspaces");
  if (t.routing) parts.emplace_back("the choice of experts");
  return parts.empty() ? "the layout of addresses" : joined(parts, " or ");
}

// It ran out at its own limit, though the card has more.
bool own_limit_ended_it(const Told& t) {
  return t.ran_out && t.row.allowed_bytes && (t.at_least || t.row.peak_reserved_bytes > *t.row.allowed_bytes);
}

std::string own_limit(const Told& t) {
  const auto fraction = fraction_of(t);
  return fraction ? fmt::format("{} lets PyTorch reserve {} (a fraction of {:.4g})", fraction->line,
                                bytes_in_words(double(*t.row.allowed_bytes)), fraction->share)
                  : "";
}

// Some of what it may need is more than there is, and some is not.
bool may_fit(const Told& t) {
  return t.row.status == Status::oom && !t.at_least && !own_limit_ended_it(t) &&
         (!t.row.high_bytes || *t.row.high_bytes > t.row.memory_bytes) && least_of(t) <= t.row.memory_bytes;
}

// What a rank may need on the card. Where a card was not measured, what is beside the tensors is a reserve, chosen too large rather than too
// small: half of it is the least.
void set_interval(ForecastRankRow& row, const ProgramAccount& a, const Told& t, bool bounded) {
  const bool measured = overhead_of(t.device, int(std::max<std::size_t>(1, t.accounts.size())), RunBy::pytorch).measured;
  const std::uint64_t less = measured ? 0 : t.room.overhead_bytes / 2;
  row.low_bytes = reserved_range(a).low + row.beside_bytes - less;
  if (bounded && !a.addresses_matter) row.high_bytes = reserved_range(a).high + row.beside_bytes;
  const bool has_room = row.needed_bytes <= t.room.memory_bytes && a.spread && a.spread->limit != 0 &&
                        a.spread->ran_out == 0;  // at the limit PyTorch empties its cache
  if (row.high_bytes && has_room) row.high_bytes = std::min(*row.high_bytes, t.room.memory_bytes);
  const bool allowed = has_room || !a.fraction || reserved_range(a).high <= a.fraction->of(t.room.memory_bytes);
  row.fits = allowed && row.high_bytes.value_or(row.needed_bytes) <= t.room.memory_bytes;
}

// A program that was not seen to its end: what it took until then may be too much already; that it fits is not known.
void say_so_far(Told& t) {
  const auto so_far = [&](std::optional<bool>& fits, std::uint64_t low) {
    fits = low > t.room.memory_bytes ? std::optional(false) : std::nullopt;
  };
  so_far(t.row.fits, t.row.low_bytes.value_or(t.row.needed_bytes));
  for (ForecastRankRow& rank : t.ranks) so_far(rank.fits, rank.low_bytes.value_or(rank.needed_bytes));
}

std::uint64_t most_reserved(const DryRun& run) {
  std::uint64_t most = 0;
  for (const ProcessStory& p : run.processes)
    for (const ProgramAccount& a : p.cards) most = std::max(most, a.peak_reserved_bytes + a.elsewhere_bytes);
  return most;
}

std::int64_t steps_of(const DryRun& run) {
  std::int64_t steps = 0;
  for (const ProcessStory& p : run.processes)
    for (const ProgramAccount& a : p.cards) steps = std::max(steps, a.whole_steps);
  return steps;
}

// A training program that ends by itself before its second step may have been ended by a value that is another one on the card. The lines
// that read such values last; empty: it is not so.
std::string ended_early_by(const DryRun& run) {
  if (!ended_well(run) || run.ended.asked || steps_of(run) > 1) return "";
  for (const ProcessStory& p : run.processes)
    if ((steps_of(run) == 1 || p.made_optimizer) && p.end.empty() && !p.unknown_lines.empty()) return joined(p.unknown_lines, " and ");
  return "";
}

// Why one step shows no more than one step.
std::string early(const Told& t) {
  return fmt::format(
      "The program ended {}, whatever was in a value of the card that {} read. If such a value ends its loop, give the loop a "
      "number of steps and forecast again",
      t.row.steps ? "after one optimizer step" : "without an optimizer step", t.short_by);
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
    if (steps_of(other) <= steps_of(run) && !ran_out(other)) continue;
    t.other_float = number;
    asked.settings = again.settings;
    return other;
  }
  return std::nullopt;
}

}  // namespace

namespace {

// A process that only opens another one's memory (CUDA IPC) has a context on that card: what the largest has beside it is more by that.
void add_context_alone(Told& t, const std::vector<ProcessStory>& stories) {
  std::uint64_t seen = 0;
  for (const ProcessStory& p : stories) seen = std::max(seen, p.seen_bytes);
  const bool one_card = std::ranges::all_of(t.accounts, [&](const ProgramAccount& a) { return a.card == t.accounts.front().card; });
  if (seen == 0 || t.accounts.empty() || !one_card || ranks_of(t.processes) > 1) return;
  const auto own = [](const ProgramAccount& a) { return a.peak_reserved_bytes + a.elsewhere_bytes; };
  ProgramAccount& most = *std::ranges::max_element(t.accounts, {}, own);
  most.others_bytes = std::max(most.others_bytes, seen - std::min(seen, own(most)));
}

}  // namespace

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

void fill(Told& t, const std::vector<ProcessStory>& stories) {
  t.processes.clear();
  t.accounts.clear();
  t.ranks.clear();
  for (const ProcessStory& p : stories)
    if (!p.cards.empty() || !p.functions.empty() || !p.values.empty() || !p.static_runtimes.empty()) t.processes.push_back(p);
  for (const ProcessStory& p : t.processes) t.accounts.insert(t.accounts.end(), p.cards.begin(), p.cards.end());
  add_context_alone(t, stories);
  const auto order = [](const ProgramAccount& a) {  // the largest first; equal ones by rank and card
    return std::tuple(~(a.peak_reserved_bytes + a.elsewhere_bytes + a.others_bytes), ~a.peak_reserved_bytes, a.rank, a.card);
  };
  std::ranges::stable_sort(t.accounts, std::less{}, order);
  const bool bounded = std::none_of(t.processes.begin(), t.processes.end(), [](const ProcessStory& p) {
    return !p.static_runtimes.empty() || p.tuned ||
           std::any_of(p.functions.begin(), p.functions.end(), [](const OnlyAcceptedRow& f) { return f.may_take_more(); });
  });
  ForecastRow& r = t.row;
  r.low_bytes.reset();
  r.high_bytes.reset();
  for (const ProgramAccount& a : t.accounts) {
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
    t.ranks.push_back(std::move(row));
  }
  const ForecastRankRow& most = t.ranks.front();
  r.peak_allocated_bytes = most.peak_allocated_bytes;  // all of one process, of one card
  r.peak_reserved_bytes = most.peak_reserved_bytes;
  r.beside_bytes = most.beside_bytes;
  r.needed_bytes = most.needed_bytes;
  for (const ForecastRankRow& rank : t.ranks) {
    r.low_bytes = std::max(r.low_bytes.value_or(0), *rank.low_bytes);
    if (rank.high_bytes) r.high_bytes = std::max(r.high_bytes.value_or(0), *rank.high_bytes);
  }
  if (!std::ranges::all_of(t.ranks, [](const ForecastRankRow& rank) { return rank.high_bytes.has_value(); })) r.high_bytes.reset();
  r.allowed_bytes.reset();
  if (const auto fraction = fraction_of(t)) r.allowed_bytes = fraction->of(t.room.memory_bytes);
  r.steps = most.steps;
  r.fragmented_bytes = most.fragmented_bytes;
  r.line = t.accounts.front().peak_line;
  r.saved_bytes = t.accounts.front().saved_bytes > 0 ? std::optional(t.accounts.front().saved_bytes) : std::nullopt;
  r.step_allocated_bytes = most.step_allocated_bytes;
  const auto in_all = [&](std::uint64_t ProcessStory::*bytes) {
    std::uint64_t sum = 0;
    for (const ProcessStory& p : stories) sum += p.*bytes;
    return sum > 0 ? std::optional(sum) : std::nullopt;
  };
  r.pinned_bytes = in_all(&ProcessStory::pinned_bytes);
  r.managed_bytes = in_all(&ProcessStory::managed_bytes);
  r.unknown_values = r.accepted_functions = 0;
  for (const ProcessStory& p : t.processes) {
    r.unknown_values += p.unknown_values();
    r.accepted_functions = std::max(
        r.accepted_functions,
        std::int64_t(std::count_if(p.functions.begin(), p.functions.end(), [](const OnlyAcceptedRow& f) { return f.what != "refused"; })));
  }
  r.ranks = ranks_of(t.processes);
  if (r.ranks > 1) r.ranks = std::max(r.ranks, std::int64_t(t.ranks.size()));
}

Room room_of_program(const Device& device, std::optional<std::uint64_t> asked, int ranks) {
  Device described = device;  // a card that is here is asked about as if it were empty
  if (!device.bus.empty() && !asked) asked = device.total_bytes;
  described.bus.clear();
  return room_of(described, asked, ranks, RunBy::pytorch);
}

dry::Dry dry_of(const Device& device, const Room& room, int cards) {
  dry::Dry d;
  d.cards = cards;
  dry::Card& c = d.card;
  c.name = name_by_driver(device);
  c.memory_bytes = room.memory_bytes;
  c.context_bytes = room.overhead_bytes;
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

std::string routed_line(const std::vector<ProcessStory>& processes) {
  for (const ProcessStory& p : processes)
    if (!p.routed.empty()) return p.routed;
  return "";
}

std::pair<std::uint64_t, std::uint64_t> allocated_range(const ProgramAccount& a) {
  return a.spread ? std::pair(a.spread->low.allocated, a.spread->high.allocated)
                  : std::pair(a.peak_allocated_bytes, a.peak_allocated_bytes);
}

// Sizes follow from which experts tokens go to. The run sent each token to any of them; the interval has room for two others: as many tokens to
// each, and all to the same (the other experts then have no gradient).
void add_routing(Told& t, const DryRunAsked& as_it_ran, const Host& host) {
  Routing routing{routed_line(t.processes), least_of(t), t.row.low_bytes.value_or(t.row.needed_bytes), t.row.high_bytes};
  std::tie(routing.allocated_low_bytes, routing.allocated_high_bytes) = allocated_range(t.accounts.front());
  for (const char* how : {"balanced", "worst"}) {
    if (t.stop(host.stop(), "the runs with other experts")) {
      routing.high_bytes.reset();
      break;
    }
    DryRunAsked asked = as_it_ran;
    asked.settings.push_back(fmt::format("{}={}", dry::routing_variable, how));
    asked.output = [](std::string_view) {};
    DryRun run = run_dry(asked);
    if (!ended_well(run) && !run.ended.asked && ran_out(run) && asked.dry.card.unlimited == 0) {
      asked.dry.card.unlimited = 1;
      run = run_dry(asked);
    }
    if (t.stop(run.ended.asked, "the runs with other experts") || !ended_well(run) || !run.any_bytes()) {
      routing.high_bytes.reset();
      continue;
    }
    Told other;
    other.device = t.device;
    other.room = t.room;
    other.row.memory_bytes = t.row.memory_bytes;
    fill(other, run.processes);
    routing.least_bytes = std::min(routing.least_bytes, least_of(other));
    routing.low_bytes = std::min(routing.low_bytes, *other.row.low_bytes);
    const auto [allocated_low, allocated_high] = allocated_range(other.accounts.front());
    routing.allocated_low_bytes = std::min(routing.allocated_low_bytes, allocated_low);
    routing.allocated_high_bytes = std::max(routing.allocated_high_bytes, allocated_high);
    if (!other.row.high_bytes) routing.high_bytes.reset();
    if (routing.high_bytes) routing.high_bytes = std::max(*routing.high_bytes, *other.row.high_bytes);
    for (ForecastRankRow& rank : t.ranks)
      for (const ForecastRankRow& same : other.ranks) {
        if (same.rank != rank.rank || same.card != rank.card) continue;
        rank.low_bytes = std::min(*rank.low_bytes, *same.low_bytes);
        rank.high_bytes = rank.high_bytes && same.high_bytes ? std::optional(std::max(*rank.high_bytes, *same.high_bytes)) : std::nullopt;
        rank.fits = rank.high_bytes.value_or(rank.needed_bytes) <= t.room.memory_bytes;
      }
  }
  t.row.low_bytes = routing.low_bytes;
  t.row.high_bytes = routing.high_bytes;
  t.routing = std::move(routing);
}

}  // namespace

namespace {

// The run that says what a program needs which does not fit. What the first run has shown stays known, whatever becomes of this one.
DryRun with_unlimited_memory(DryRunAsked& asked, DryRun first, const Host& host, Told& t) {
  constexpr const char* what = "the run with unlimited memory that says how much it needs";
  t.at_least = true;
  if (t.stop(host.stop(), what)) return first;
  asked.dry.card.unlimited = 1;
  asked.output = [](std::string_view) {};
  DryRun whole = run_dry(asked);
  t.stop(whole.ended.asked, what);
  t.at_least = !ended_well(whole);  // what comes after its end is not known
  if (t.at_least && !t.stopped) t.ended = how_it_ended(whole);
  return t.at_least && most_reserved(whole) <= most_reserved(first) ? std::move(first) : std::move(whole);
}

// Of a program that does not fit and was not seen to its end without a limit: which of its ranks do not.
void say_what_ran_out(Told& t) {
  for (std::size_t i = 0; i < t.ranks.size(); ++i) {
    const ProgramAccount& a = t.accounts[i];
    const bool too_much = a.ran_out || t.ranks[i].low_bytes.value_or(0) > t.room.memory_bytes ||
                          (a.fraction && a.peak_reserved_bytes > a.fraction->of(t.room.memory_bytes));
    if (too_much || t.at_least) t.ranks[i].fits = too_much ? std::optional(false) : std::nullopt;
  }
}

}  // namespace

Told forecast_one(const Forecast& a, const std::vector<std::string>& program, const Host& host, const ProgramOutput& output,
                  const std::vector<std::string>& change) {
  Told t;
  t.device = a.device;
  const int told = ranks_told(program), cards = a.gpus > 0 ? a.gpus : told;
  t.room = room_of_program(a.device, a.memory_bytes, told);
  t.row.program = joined(program, " ");
  t.row.device = a.device.name;
  t.row.memory_bytes = t.room.memory_bytes;
  OneHost one = one_host_of(program);
  DryRunAsked asked{.program = std::move(one.program),
                    .dry = dry_of(a.device, t.room, cards),
                    .steps = a.steps,
                    .rates = rates_of(a.device, a.host_speed),
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
  if (!ended_early_by(run).empty() && !std::getenv(dry::float_variable)) {
    asked.progress = doing("ended after one step; once more with another value");
    if (auto other = with_another_float(asked, run, host, t)) run = std::move(*other);
  }
  const bool too_small = !ended_well(run) && !run.ended.asked && ran_out(run);
  t.ran_out = where_it_ran_out(run);
  t.went_on = t.ran_out && t.ran_out->raised && ended_well(run);
  t.stop(run.ended.asked, "");
  if (!run.any_bytes()) refuse_without_bytes(run, a);
  if (too_small) asked.progress = doing("does not fit; once more with unlimited memory");
  if (too_small) run = with_unlimited_memory(asked, std::move(run), host, t);
  if (const int here = ranks_here(run.processes); here != told) t.room = room_of_program(a.device, a.memory_bytes, here);
  fill(t, run.processes);
  if (!routed_line(t.processes).empty() && !t.stopped && ended_well(run) && !std::getenv(dry::routing_variable)) {
    asked.progress = doing("other experts");
    add_routing(t, asked, host);
  }
  t.time = slowest_rank(t.processes, asked.rates, a.device);
  t.row.ms = t.time.ms;
  t.row.ms_low = t.time.ms_low;
  t.row.ms_high = t.time.ms_high;
  t.row.time_why = t.time.why;
  t.row.time_limit = t.time.limit;
  t.row.host_bytes = std::uint64_t(run.ended.host_peak_bytes);
  t.short_by = ended_early_by(run);
  if (!t.short_by.empty() || t.at_least) {
    t.row.high_bytes.reset();
    for (ForecastRankRow& rank : t.ranks) rank.high_bytes.reset();
  }
  const bool allowed = !t.row.allowed_bytes || std::ranges::all_of(t.ranks, [](const ForecastRankRow& rank) { return rank.fits != false; });
  t.row.fits = !too_small && allowed && t.row.high_bytes.value_or(t.row.needed_bytes) <= t.room.memory_bytes;
  if (!too_small && !ended_well(run) && !t.stopped) t.ended = how_it_ended(run);
  for (const ProcessStory& p : run.processes)
    if (p.waits) t.waits = p.end;
  t.row.to_its_end = !ended_by_forecast(t) && ended_well(run) && !t.at_least;
  if (too_small) {
    t.row.status = Status::oom;
    t.row.why = fmt::format("runs out in {}{}", where(*t.ran_out), t.not_run.empty() ? "" : fmt::format("; {} was stopped", t.not_run));
    if (own_limit_ended_it(t)) t.row.why += fmt::format("; {}", own_limit(t));
    if (t.at_least || t.row.allowed_bytes) say_what_ran_out(t);
    t.row.line = t.ran_out->own_line.empty() ? t.ran_out->line : t.ran_out->own_line;
  } else if (t.stopped) {
    t.row.status = Status::interrupted;
    t.row.why = t.not_run.empty() ? "stopped before its end" : fmt::format("{} was stopped", t.not_run);
    say_so_far(t);
  } else if (!ended_well(run)) {
    t.row.status = Status::failed;
    t.row.why = t.ended;
    say_so_far(t);
  } else if (t.row.fits == false) {
    t.row.status = Status::oom;
    t.row.why = may_fit(t) ? fmt::format("may need {}, which is more than there is",
                                         bytes_in_words(double(t.row.high_bytes.value_or(t.row.needed_bytes))))
                           : misfit(t.room, t.row.peak_reserved_bytes);
  } else if (!t.short_by.empty()) {
    t.row.why = early(t);
  }
  return t;
}

namespace {

// Of a program that was stopped: the line that may have waited for a value.
std::string looping(const Told& t) {
  if (!t.not_run.empty()) return "";
  for (const ProcessStory& p : t.processes)
    if (!p.loop.empty())
      return fmt::format(
          " {} has read a value that only the card knows {} times or more without an optimizer step between: it may wait for it.", p.loop,
          p.loop_reads);
  return "";
}

}  // namespace

std::string verdict(const Told& t) {
  const std::string stopped = t.not_run.empty() ? "" : fmt::format(" Stopped during {}.", t.not_run);
  const auto words = [](std::uint64_t b) { return bytes_in_words(double(b)); };
  const ForecastRow& r = t.row;
  const std::string who = fmt::format("{}{}", who_needs(t), t.at_least || !r.high_bytes ? " at least" : "");
  const std::string low = words(least_of(t)), high = words(r.high_bytes.value_or(r.needed_bytes));
  const std::string needed = low == high    ? words(r.needed_bytes)
                             : r.high_bytes ? fmt::format("{} to {}", low, high)
                                            : fmt::format("{} ({} as it ran)", low, high);
  const std::string of = fmt::format("{} of {}", needed, words(r.memory_bytes));
  switch (r.status) {
    case Status::ok:
      return fmt::format("Fits{} on {}: {} {} ({:.0f} %).",
                         !t.short_by.empty() ? t.row.steps ? " as far as one step shows" : " as far as it ran"
                         : !r.high_bytes     ? " as far as is known"
                         : ended_by_forecast(t)
                             ? fmt::format(" as far as {} show", *r.steps == 1 ? "one step" : fmt::format("{} steps", *r.steps))
                             : "",
                         r.device, who, of, 100.0 * double(r.high_bytes.value_or(r.needed_bytes)) / double(r.memory_bytes)) +
             (t.short_by.empty() ? "" : " " + early(t) + ".") +
             (t.went_on ? fmt::format(" It ran out of memory in {}, caught that, and went on.", where(*t.ran_out)) : "");
    case Status::oom: {
      if (may_fit(t))
        return fmt::format("May not fit on {}: {} {} of {}; {} decides on the card.", r.device, who_needs(t),
                           r.high_bytes ? needed : fmt::format("{} or more", low), words(r.memory_bytes), deciding(t)) +
               (t.ran_out ? fmt::format(" Here it ran out in {}.", where(*t.ran_out)) : "");
      // A run that was stopped, or failed, before it needed more than there is.
      const bool below = t.at_least && t.ran_out && r.needed_bytes <= r.memory_bytes;
      const std::string less = r.needed_bytes > r.memory_bytes ? fmt::format(", {} too much", words(r.needed_bytes - r.memory_bytes)) : "";
      std::string said = own_limit_ended_it(t) ? fmt::format("Does not fit on {}: {}; {} {}, {} of it PyTorch's{}.", r.device, own_limit(t),
                                                             who, of, words(r.peak_reserved_bytes), less)
                         : below               ? fmt::format("Does not fit on {}: it has taken {} when it runs out.", r.device, of)
                                               : fmt::format("Does not fit on {}: {} {}{}.", r.device, who, of, less);
      if (t.ran_out)
        said += fmt::format(" It runs out in {}{}.", where(*t.ran_out),
                            t.ran_out->bytes > 0 ? fmt::format(", which asks for {}", words(t.ran_out->bytes)) : "");
      if (t.at_least && !t.ended.empty()) said += fmt::format(" With unlimited memory it failed later ({}).", t.ended);
      return said + stopped;
    }
    case Status::interrupted:
      return fmt::format("Stopped before {}: as far as is known, {} {} on {}{}.{}{}", t.not_run.empty() ? "its end" : "all is known", who,
                         of, r.device, r.fits == false ? ", which does not fit" : "",
                         t.ran_out && t.ran_out->raised ? fmt::format(" It ran out of memory in {}.", where(*t.ran_out)) : "", looping(t)) +
             stopped;
    default: {
      const std::string until = fmt::format("Until then {} {} on {}", who, of, r.device);
      if (!t.waits.empty())
        return fmt::format("Not known whether it fits: {}. {}. Give that loop a number of turns after which it ends, and forecast again.",
                           t.waits, until);
      return fmt::format("The program failed ({}). {}.", t.ended, until);
    }
  }
}

}  // namespace headroom::studies
