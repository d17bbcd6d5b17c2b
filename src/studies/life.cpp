#include "studies/life.h"

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"

namespace headroom::studies {

namespace {

std::string text_of(const RowObject& j) { return j.dump(-1, ' ', false, RowObject::error_handler_t::replace); }

}  // namespace

Life::Life(const Host& host, const std::string& command, const RowObject& settings, const std::string& machine)
    : results_(host.store.empty() ? default_results_file() : host.store, Results::Access::write), command_(command), machine_(machine) {
  const std::string asked = text_of(settings);
  const auto earlier = host.resume ? results_.unfinished(command, asked, machine) : std::nullopt;
  goes_on_ = earlier.has_value();
  run_ = earlier ? earlier->id : results_.start_run(command, asked, machine);
  if (host.resume && !earlier) host.say("there is no interrupted run with these settings by version " HEADROOM_VERSION "; starting afresh");
  if (!earlier) return;
  const auto stored = results_.rows(run_);
  const auto rows = row_objects(results_, run_);
  for (std::size_t i = 0; i < rows.size(); ++i) known_.emplace(stored[i].key, rows[i]);
}

const RowObject* Life::known(const std::string& key) const {
  const auto at = known_.find(key);
  return at == known_.end() ? nullptr : &at->second;
}

void Life::keep(const std::string& key, const RowObject& row, const RowObject& detail) {
  results_.add_row(run_, {key, text_of(row), text_of(detail)});
}

void Life::adopt(const std::function<bool(const RowObject& settings)>& same, const std::function<bool(const RowObject& row)>& wanted) {
  if (goes_on_) return;
  for (const StoredRun& earlier : results_.runs()) {  // the newest first
    if (earlier.id == run_ || earlier.command != command_ || earlier.machine != machine_) continue;
    if (const auto settings = parse_json_or_discard<RowObject>(earlier.settings); !settings.is_object() || !same(settings)) continue;
    const auto rows = row_objects(results_, earlier.id);
    const auto stored = results_.rows(earlier.id);
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (wanted(rows[i])) results_.add_row(run_, stored[i]);
    return;
  }
}

void Life::finish() { results_.finish_run(run_); }

std::string Life::stopped(const std::string& where, const std::string& then) const {
  return fmt::format("headroom {}: {} {}; {}{}{}", command_, stopped_by(), where, name(), then.empty() ? "" : "; ", then);
}

std::string Life::name() const { return fmt::format("run {} in {}", run_, results_.file()); }

}  // namespace headroom::studies
