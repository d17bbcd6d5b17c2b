#include "studies/attention/study.h"

#include <algorithm>

#include "studies/attention/analysis.h"

namespace headroom::studies {

Outcome attention_study(const AttentionSweep& sweep, const Device& device, const Host& host) {
  cases_of(sweep, device);  // bad settings end here, before a store is touched
  Life life(host, "attention", json_of(sweep), device.name);
  SweepHooks hooks;
  hooks.known = [&](const std::string& key) -> std::optional<AttentionRow> {
    const RowObject* row = life.known(key);
    return row ? std::optional(read_described<AttentionRow>(*row, "results: a stored row")) : std::nullopt;
  };
  hooks.finished = [&](const std::string& key, const AttentionRow& r) { life.keep(key, json_of(r), samples_json(r)); };
  hooks.progress = host.progress;
  hooks.stop = host.stop;
  const SweepResult result = run_sweep(sweep, device, hooks);

  const auto count = [&](auto&& is) { return std::size_t(std::count_if(result.rows.begin(), result.rows.end(), is)); };
  const bool whole = result.rows.size() == result.asked;
  const std::size_t wrong = count([](const AttentionRow& r) { return r.status == Status::failed; });
  const bool none = !result.rows.empty() && count([](const AttentionRow& r) { return answers_no(r.status); }) == result.rows.size();
  Outcome outcome{attention_record(sweep, device, result)};
  outcome.answer = !whole || wrong > 0 ? Answer::failed : none ? Answer::no : Answer::yes;
  outcome.said = whole ? life.name() : life.stopped(fmt::format("after {} of {} rows", result.rows.size(), result.asked));
  if (wrong > 0) outcome.said += fmt::format("; {} of {} rows failed", wrong, result.rows.size());
  if (whole) outcome.life.emplace(std::move(life));
  return outcome;
}

}  // namespace headroom::studies
