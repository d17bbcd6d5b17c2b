#include "studies/forecast/forecast.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "gpu/device.h"
#include "report/described_table.h"
#include "studies/forecast/check.h"
#include "studies/forecast/run.h"
#include "studies/forecast/tries.h"

namespace headroom::studies {

namespace {

RowObject with_table(const char* name, const RowObject& row) {
  RowObject named{{"table", name}};
  named.update(row);
  return named;
}

void keep(Life& life, const Told& t) {
  life.keep(key_of(t.row), json_of(t.row));
  const auto table = [&](const char* name, const auto& rows) {
    if (rows.empty()) return;
    RowObject lines = RowObject::array();
    for (const auto& row : rows) lines.push_back(json_of(row));
    life.keep(fmt::format("{} {}", name, key_of(t.row)), {{"table", name}, {"rows", lines.size()}}, {{"rows", lines}});
  };
  if (!t.row.setting.empty() || !t.row.change.empty()) return;  // one of many: its row says enough
  table("ranks", t.ranks);
  const ProgramAccount& most = t.accounts.front();
  table("phases", most.phases);
  table("at_peak", most.at_peak);
  table("saved", most.saved);
  table("curve", most.curve);
}

Answer answer_of(const std::vector<ForecastRow>& rows) {
  const auto any = [&](auto&& is) { return std::any_of(rows.begin(), rows.end(), is); };
  if (any([](const ForecastRow& r) { return r.fits == true; })) return Answer::yes;
  if (any([](const ForecastRow& r) { return r.status == Status::oom; })) return Answer::no;
  return Answer::failed;
}

// Bytes of a setting without an answer are not 0.
constexpr std::array bytes_of_an_answer = {"peak_allocated_bytes", "peak_reserved_bytes", "beside_bytes", "needed_bytes"};
bool has_bytes(const ForecastRow& row) { return row.needed_bytes > 0; }

RowObject kept(const ForecastRow& row) {
  RowObject j = json_of(row);
  if (!has_bytes(row))
    for (const char* field : bytes_of_an_answer) j[field] = nullptr;
  return j;
}

Table table_of_settings(const std::vector<ForecastRow>& rows) {
  Table t = table_of("rows", "", rows);
  for (std::size_t c = 0; c < t.columns.size(); ++c)
    if (std::ranges::find(bytes_of_an_answer, t.columns[c].name) != bytes_of_an_answer.end())
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (!has_bytes(rows[i])) t.rows[i][c] = {};
  leave_out(t, "change");
  t.show("memory_bytes", Show::detail);
  return t;
}

class Several {  // settings of one program, each with a row
 public:
  Several(const Forecast& a, const Host& host, Life& life) : a_(a), host_(host), life_(life) {}

  const ForecastRow& run(const std::vector<std::string>& program, const std::string& setting, double share) {
    Host here = host_;
    here.progress = [&](double, const std::string& doing) { host_.progress(share, fmt::format("{}: {}", setting, doing)); };
    ForecastRow row;
    try {
      Told t = forecast_one(a_, program, here, [](std::string_view) {});
      stopped_ |= t.stopped;
      row = std::move(t.row);
    } catch (const Error& e) {
      if (e.at.code == Code::bad_argument) throw;
      row.status = status_of(e.at.code);
      row.why = e.what();
      row.device = a_.device.name;
    }
    row.program = as_typed_in_a_shell(a_.program);
    row.setting = setting;
    life_.keep(key_of(row), kept(row));
    rows_.push_back(std::move(row));
    return rows_.back();
  }

  // The card, with the memory that was asked for where a row shows that it is less than all.
  std::string card() const {
    const auto known = std::ranges::find_if(rows_, [](const ForecastRow& row) { return row.memory_bytes > 0; });
    if (!a_.memory_bytes || known == rows_.end() || known->memory_bytes != *a_.memory_bytes) return a_.device.name;
    return fmt::format("{} in {}", a_.device.name, bytes_in_words(double(known->memory_bytes)));
  }

  bool stopped() const { return stopped_ || host_.stop(); }
  const std::vector<ForecastRow>& rows() const { return rows_; }

 private:
  const Forecast& a_;
  const Host& host_;
  Life& life_;
  std::vector<ForecastRow> rows_;
  bool stopped_ = false;
};

struct Largest {
  std::optional<std::int64_t> fits;
  std::int64_t not_above = 0;  // the least value that is known not to fit, or one above the range
  std::string without{};       // "batch=8: exit code 7": a value without an answer ended the search
};

// The largest value of a range that fits, where a smaller one always does. Doubles first: large settings cost most.
Largest largest_of(Several& several, const Varied& v, const std::vector<std::string>& program, const std::string& before) {
  Largest found{{}, v.high + 1};
  auto& fits = found.fits;
  auto& not_above = found.not_above;
  auto& without = found.without;
  const auto tried = [&](std::int64_t value) {  // false: there is no answer, and the search ends with what is known
    const std::string word = fmt::format("{}", value);
    const double share = not_above > v.low ? 1 - double(not_above - fits.value_or(v.low)) / double(v.high + 1 - v.low) : 1;
    const ForecastRow& row = several.run(with_value(program, v.name, word), fmt::format("{}{}={}", before, v.name, word), share * 0.9);
    if (row.fits == true && row.status == Status::ok)
      fits = value;
    else if (row.fits == false)
      not_above = value;
    else if (!several.stopped())
      without = fmt::format("{}={}: {}", v.name, word, row.why);
    return (row.fits.has_value() && row.status != Status::failed) && !several.stopped();
  };
  for (std::int64_t value = v.low; value < not_above && !several.stopped();) {
    if (!tried(value)) return found;
    if (value == v.high) return found;
    value = std::min(v.high, std::max(value + 1, value * 2));
  }
  while (fits && not_above - *fits > 1 && !several.stopped())
    if (!tried(*fits + (not_above - *fits) / 2)) return found;
  return found;
}

bool is_whole(const Varied& range, const Largest& found) {
  return found.fits ? found.not_above - *found.fits == 1 : found.not_above == range.low;
}

std::string words_of(const Varied& range, const Largest& found, const std::string& on) {
  const auto& [most, not_above, without] = found;
  if (most == range.high) return fmt::format("All of {}={}..{} fits{}", range.name, range.low, range.high, on);
  if (is_whole(range, found))
    return most ? fmt::format("The largest {} that fits{} is {}", range.name, on, *most)
                : fmt::format("Not even {}={} fits{}", range.name, range.low, on);
  const std::string above = not_above <= range.high ? fmt::format("{}={} does not", range.name, not_above) : "larger ones are not known";
  const std::string ended = without.empty() ? "Stopped" : fmt::format("No answer at {}", without);
  return most              ? fmt::format("{}: {}={} fits{}, {}", ended, range.name, *most, on, above)
         : without.empty() ? fmt::format("Stopped before it is known which {} fits{}{}", range.name, on,
                                         not_above <= range.high ? fmt::format(": {}", above) : "")
                           : fmt::format("{}: it is not known which {} fits{}", ended, range.name, on);
}

Outcome several_settings(const Forecast& a, const Host& host, Life life) {
  Several several(a, host, life);
  Record r{"forecast", "", {}};
  std::vector<std::string> verdicts;
  bool whole = true;  // nothing is left to run
  const Varied sweep = a.sweep.empty() ? Varied{"", {""}, 0, 0} : list_of_values(a.sweep, a.program);
  for (std::size_t i = 0; i < sweep.values.size() && !several.stopped(); ++i) {
    const std::string& value = sweep.values[i];
    const auto program = sweep.name.empty() ? a.program : with_value(a.program, sweep.name, value);
    const std::string before = sweep.name.empty() ? "" : fmt::format("{}={}", sweep.name, value);
    if (a.largest.empty()) {
      several.run(program, before, double(i) / double(sweep.values.size()));
      continue;
    }
    const Varied range = range_of_values(a.largest, a.program);
    const auto most = largest_of(several, range, program, before.empty() ? "" : before + " ");
    const std::string on = fmt::format(" on {}{}", several.card(), before.empty() ? "" : " with " + before);
    verdicts.push_back(words_of(range, most, on));
    whole &= is_whole(range, most);
  }
  const auto& rows = several.rows();
  if (verdicts.empty()) {
    const auto fit = std::ranges::count_if(rows, [](const ForecastRow& row) { return row.fits == true; });
    const auto open = std::ranges::count_if(rows, [](const ForecastRow& row) { return !row.fits.has_value(); });
    whole = rows.size() == sweep.values.size() && open == 0;
    const std::string without = open == 0 ? "" : fmt::format("; {} gave no answer", open);
    verdicts.push_back(
        whole || !several.stopped()
            ? fmt::format("{} of {} {} on {}{}", fit, counted(rows.size(), "setting"), fit == 1 ? "fits" : "fit", several.card(), without)
            : fmt::format("Stopped: {} of {} settings were run, {} fit on {}", rows.size(), sweep.values.size(), fit, several.card()));
  } else {
    whole &= verdicts.size() == sweep.values.size();
  }
  r.title = joined(verdicts, "; ") + ".";
  std::vector<ForecastRow> sorted = rows;
  if (!a.largest.empty() && a.sweep.empty())
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& x, const auto& y) { return x.needed_bytes < y.needed_bytes; });
  r.add(Part{table_of_settings(sorted)});
  for (const ForecastRow& row : rows)
    if (!row.why.empty()) r.add(Part{Note{fmt::format("{}: {}", row.setting, row.why), false}});
  if (several.stopped()) {
    std::string said = life.stopped(fmt::format("after {}", counted(rows.size(), "setting")), "");
    return {std::move(r), whole ? answer_of(rows) : Answer::failed, std::nullopt, std::move(said)};
  }
  std::string said = life.name();
  return {std::move(r), whole || a.largest.empty() ? answer_of(rows) : Answer::failed, std::move(life), std::move(said)};
}

// The need with the allocator that keeps nothing between its blocks. What is known already stays, whatever becomes of this run.
std::optional<ForecastRow> with_expandable_segments(const Forecast& a, const Host& host, Told& t) {
  constexpr const char* what = "the run with expandable segments";
  if (t.stop(host.stop(), what)) return std::nullopt;
  try {
    Told other = forecast_one(
        a, a.program, host, [](std::string_view) {}, with_allocator("expandable_segments:True"));
    if (t.stop(other.stopped, what) || other.at_least || other.row.status == Status::failed) return std::nullopt;
    return std::move(other.row);
  } catch (const Error& e) {
    t.stop(e.at.code == Code::interrupted, what);
    return std::nullopt;
  }
}

// The same program on the card that is here, beside its forecast. A run that fails there takes nothing from the forecast.
bool check_beside(const Forecast& a, const Told& t, const ProgramOutput& output, Life& life, Record& r) {
  try {
    const Told measured = check_on_card(a, t, output);
    life.keep("measured " + key_of(measured.row), with_table("measured", json_of(measured.row)));
    r.add(Part{table_of("check", "Forecast against this card", check_rows(t, measured))});
    if (measured.stopped || !measured.ended.empty())
      r.add(Part{Note{measured.stopped ? "The run on this card was stopped: its bytes are those until then."
                                       : fmt::format("The run on this card failed ({}): its bytes are those until then.", measured.ended),
                      false}});
    return true;
  } catch (const Error& e) {
    r.add(Part{Note{e.what(), false}});
    return false;
  }
}

}  // namespace

Outcome forecast(const Forecast& a, const Host& host, const ProgramOutput& output, bool for_people) {
  check(a);
  (void)find_dry_library();
  check(!a.check || cuda_device_count() > 0, Code::unsupported,
        "--check runs the program on a card, and there is none in this machine; leave it out");
  RowObject settings = json_of(a);
  settings["device"] = a.device.name;
  Life life(host, "forecast", settings, a.device.name);
  if (!a.sweep.empty() || !a.largest.empty()) return several_settings(a, host, std::move(life));
  Told t = forecast_one(a, a.program, host, output);
  // Where what is reserved and not used could decide, the allocator that has no such rest is tried.
  if (t.row.status == Status::oom && t.row.needed_bytes > t.row.memory_bytes &&
      t.row.needed_bytes - t.row.memory_bytes <= t.row.fragmented_bytes.value_or(0) && !t.stopped)
    t.expandable = with_expandable_segments(a, host, t);
  keep(life, t);
  t.tries = a.tries && (t.row.status == Status::ok || t.row.status == Status::oom);
  Outcome outcome{told_record(t, for_people)};
  if (t.tries) {
    const Tries tries = tries_of(a, t.row, host, t.stopped);
    for (const ForecastTryRow& row : tries.rows) life.keep("tries " + row.change, with_table("tries", json_of(row)));
    add_tries(tries, t.row, for_people, outcome.record);
    t.stopped |= tries.stopped;
  }
  const bool checked = !a.check || (!t.stopped && check_beside(a, t, output, life, outcome.record));
  const bool too_much = t.row.status == Status::oom || (t.row.status == Status::interrupted && t.row.fits == false);
  outcome.answer = !checked && !t.stopped ? Answer::failed : t.row.fits == true ? Answer::yes : too_much ? Answer::no : Answer::failed;
  outcome.said =
      t.stopped ? life.stopped(fmt::format("after {}", counted(std::uint64_t(t.row.steps.value_or(0)), "step")), "") : life.name();
  if (!t.stopped) outcome.life.emplace(std::move(life));
  return outcome;
}

}  // namespace headroom::studies
