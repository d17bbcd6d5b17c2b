#include "studies/life.h"

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"

namespace headroom::studies {

namespace {

using std::chrono::milliseconds;
constexpr milliseconds a_short_while(50), at_a_stop(2000), at_the_end(30'000), between_tries(1000);

std::string file_of(const Host& host) { return host.store.empty() ? default_results_file() : host.store; }

}  // namespace

void check_store(const Host& host) {
  try {
    Results(file_of(host), Results::Access::write, host.patience);
  } catch (const StoreBusy&) {}  // NOLINT(bugprone-empty-catch): a Life waits for it
}

Life::Life(const Host& host, const std::string& command, const RowObject& settings, const std::string& machine, Afresh afresh)
    : store_(file_of(host)),
      command_(command),
      settings_(text_of_json(settings)),
      machine_(machine),
      say_(host.say),
      patience_(host.patience) {
  try {
    results_.emplace(store_, Results::Access::write, patience_);
    Results::Transaction once(*results_);  // the run and its rows as they are at one moment
    const auto earlier = host.resume ? results_->resume_run(command, settings_, machine) : std::nullopt;
    goes_on_ = earlier.has_value();
    run_ = earlier ? earlier->id : results_->start_run(command, settings_, machine);
    if (earlier)
      for (KeyedRow& kept : keyed_rows(*results_, run_)) known_.emplace(std::move(kept.stored.key), std::move(kept.row));
    once.commit();
  } catch (const StoreBusy& e) {
    if (host.resume) throw;
    run_ = 0;
    warn(e.what());
  }
  if (host.resume && !goes_on_ && afresh == Afresh::said)
    host.say("there is no interrupted run with these settings by version " HEADROOM_VERSION "; starting afresh");
}

Life::~Life() {
  try {
    if (!waiting_.empty()) put_late(a_short_while);
  } catch (...) {  // NOLINT(bugprone-empty-catch): an allocation failed too
  }
}

const RowObject* Life::known(const std::string& key) const {
  const auto at = known_.find(key);
  return at == known_.end() ? nullptr : &at->second;
}

void Life::warn(const std::string& why) {
  if (!std::exchange(warned_, true)) say_(fmt::format("{}. The run goes on: its rows wait in memory, and the store is tried again", why));
}

void Life::put_waiting(milliseconds wait) {
  if (!results_) results_.emplace(store_, Results::Access::write, wait);
  results_->wait_at_most(wait);
  Results::Transaction all(*results_);
  const std::int64_t run = run_ > 0 ? run_ : results_->start_run(command_, settings_, machine_);
  for (const StoredRow& row : waiting_) results_->add_row(run, row);
  all.commit();
  run_ = run;
  waiting_.clear();
}

std::string Life::put_late(milliseconds wait) {
  try {
    if (run_ == 0 || !waiting_.empty()) put_waiting(wait);
    return "";
  } catch (const std::exception& e) { return e.what(); }
}

void Life::keep(const std::string& key, const RowObject& row, const RowObject& detail) {
  waiting_.push_back({key, text_of_json(row), text_of_json(detail)});
  const auto now = std::chrono::steady_clock::now();
  if (warned_ && now - tried_ < between_tries) return;
  tried_ = now;
  try {
    put_waiting(warned_ ? a_short_while : patience_);  // a store that failed once holds up no row after it
  } catch (const Error& e) {
    if (e.at.code != Code::io) throw;
    warn(e.what());
  }
}

void Life::adopt(const std::function<bool(const RowObject& settings)>& same, const std::function<bool(const RowObject& row)>& wanted) {
  if (goes_on_ || run_ == 0) return;
  Results::Transaction once(*results_);
  for (const StoredRun& earlier : results_->runs()) {  // the newest first
    if (earlier.id == run_ || earlier.command != command_ || earlier.machine != machine_) continue;
    if (const auto settings = parse_json_or_discard<RowObject>(earlier.settings); !settings.is_object() || !same(settings)) continue;
    for (const KeyedRow& kept : keyed_rows(*results_, earlier.id))
      if (wanted(kept.row)) results_->add_row(run_, kept.stored);
    break;
  }
  once.commit();
}

std::string Life::finish() {
  const bool late = run_ == 0;
  std::string why = put_late(at_the_end);
  if (why.empty()) try {
      results_->wait_at_most(at_the_end);
      results_->finish_run(run_);
    } catch (const Error& e) {
      if (e.at.code != Code::io) throw;
      why = e.what();
    }
  if (!why.empty()) return fmt::format("headroom {}: {} is not complete: {}", command_, name(), why);
  return late ? name() : "";
}

std::string Life::stopped(const std::string& where, const std::string& then) {
  const std::string why = put_late(at_a_stop);
  return fmt::format("headroom {}: {} {}; {}{}{}", command_, stopped_by(), where, name(), why.empty() ? "" : " is not complete: " + why,
                     then.empty() ? "" : "; " + then);
}

std::string Life::name() const {
  return run_ > 0 ? fmt::format("run {} in {}", run_, store_) : fmt::format("the run, not in {} yet,", store_);
}

}  // namespace headroom::studies
