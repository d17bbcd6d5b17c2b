#include "studies/forecast/verdict.h"

#include <algorithm>

#include "base/text.h"
#include "studies/forecast/reading.h"

namespace headroom::studies {

std::string where(const RanOut& r) {
  const bool before = !r.phase.empty() && kind_of_phase(r.phase) == PhaseKind::before;
  std::vector<std::string> parts;
  if (!before || r.step > 1) parts.push_back(fmt::format("in step {}", r.step));
  if (before ? r.step <= 1 : !r.phase.empty()) parts.push_back(r.phase);  // a later step without a phase has the first phase's name
  if (const std::string& line = r.own_line.empty() ? r.line : r.own_line; !line.empty()) parts.push_back(line);
  return joined(parts);
}

std::string own_limit(const Told& t) {
  const auto fraction = fraction_of(t);
  return fraction ? fmt::format("{} lets PyTorch reserve {} (a fraction of {:.4g})", fraction->line,
                                bytes_in_words(double(*t.row.allowed_bytes)), fraction->share)
                  : "";
}

std::string early(const Told& t) {
  return fmt::format(
      "The program ended {}, whatever was in a value of the card that {} read. If such a value ends its loop, give the loop a "
      "number of steps and forecast again",
      t.row.steps ? "after one optimizer step" : "without an optimizer step", t.short_by);
}

namespace {

// The subject of the answer: a program, the largest of its ranks, or of processes and cards that are no ranks.
std::string who_needs(const Told& t) {
  if (t.row.ranks > 1) return fmt::format("the largest of {} ranks needs", t.row.ranks);
  if (t.accounts.size() < 2) return "it needs";
  const bool together = t.accounts.front().others_bytes > 0;
  const bool cards = std::ranges::all_of(t.accounts, [&](const ProgramAccount& a) { return a.pid == t.accounts.front().pid; });
  if (together) return "its processes together need";
  return fmt::format("the largest of {} {} needs", t.accounts.size(), cards ? "cards" : "processes");
}

// What decides where the need lies between its ends.
std::string deciding(const Told& t) {
  const ProgramAccount& a = t.accounts.front();
  std::vector<std::string> parts;
  if (a.pool_slack_bytes > 0) parts.emplace_back("what the driver's pool keeps");
  if (a.spread && a.spread->choices > 0 && a.spread->low.reserved < a.spread->high.reserved) parts.emplace_back("the layout of addresses");
  if (a.before_update) parts.emplace_back("how many steps the scaler skips");
  if (a.unsure_bytes > 0) parts.emplace_back("the size of workspaces");
  for (const Routing& one : t.routing) parts.emplace_back(words_of(one.guessed).decides);
  if (!t.late_runs.empty()) parts.emplace_back("when a second stream is done with memory");
  return parts.empty() ? "the layout of addresses" : joined(parts, " or ");
}

// The line at which a stopped program may have waited for a value.
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
                             ? *r.steps == 1 ? " as far as one step shows" : fmt::format(" as far as {} steps show", *r.steps)
                             : "",
                         r.device, who, of, 100.0 * double(r.high_bytes.value_or(r.needed_bytes)) / double(r.memory_bytes)) +
             (t.short_by.empty() ? "" : " " + early(t) + ".") +
             (t.went_on ? fmt::format(" It ran out of memory {}, caught that, and went on.", where(*t.ran_out)) : "");
    case Status::oom: {
      if (may_fit(t))
        return fmt::format("May not fit on {}: {} {} of {}; {} decides on the card.", r.device, who_needs(t),
                           r.high_bytes ? needed : fmt::format("{} or more", low), words(r.memory_bytes), deciding(t)) +
               (fraction_of(t) ? fmt::format(" {}.", own_limit(t)) : "") +
               (t.ran_out ? fmt::format(" Here it ran out {}.", where(*t.ran_out)) : "");
      // A run that was stopped, or failed, before it needed more than there is.
      const bool below = t.at_least && t.ran_out && r.needed_bytes <= r.memory_bytes;
      const std::string less = r.needed_bytes > r.memory_bytes ? fmt::format(", {} too much", words(r.needed_bytes - r.memory_bytes)) : "";
      std::string said = own_limit_ended_it(t) ? fmt::format("Does not fit on {}: {}; {} {}, {} of it PyTorch's{}.", r.device, own_limit(t),
                                                             who, of, words(r.peak_reserved_bytes), less)
                         : below               ? fmt::format("Does not fit on {}: it has taken {} when it runs out.", r.device, of)
                                               : fmt::format("Does not fit on {}: {} {}{}.", r.device, who, of, less);
      if (t.ran_out)
        said += fmt::format(" It runs out {}{}.", where(*t.ran_out),
                            t.ran_out->bytes > 0 ? fmt::format(", at a request for {}", words(t.ran_out->bytes)) : "");
      if (t.at_least && !t.ended.empty()) said += fmt::format(" With unlimited memory it failed later ({}).", t.ended);
      return said + stopped;
    }
    case Status::interrupted:
      return fmt::format("Stopped before {}: as far as is known, {} {} on {}{}.{}{}", t.not_run.empty() ? "its end" : "all is known", who,
                         of, r.device, r.fits == false ? ", which does not fit" : "",
                         t.ran_out && t.ran_out->raised ? fmt::format(" It ran out of memory {}.", where(*t.ran_out)) : "", looping(t)) +
             stopped;
    default: {
      const std::string until = fmt::format("Up to that point {} {} on {}", who, of, r.device);
      if (!t.waits.empty())
        return fmt::format("Not known whether it fits: {}. {}. Give that loop a number of turns after which it ends, and forecast again.",
                           t.waits, until);
      return fmt::format("The program failed ({}){}. {}.", t.ended, t.advice.empty() ? "" : ": " + t.advice, until);
    }
  }
}

}  // namespace headroom::studies
