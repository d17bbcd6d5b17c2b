#include "studies/forecast/forecast.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "gpu/device.h"
#include "report/described_table.h"
#include "studies/forecast/check.h"
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
    row.program = joined(a_.program, " ");
    row.setting = setting;
    life_.keep(key_of(row), json_of(row));
    rows_.push_back(std::move(row));
    return rows_.back();
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
};

// The largest value of a range that fits, where a smaller one always does. Doubles first: large settings cost most.
Largest largest_of(Several& several, const Varied& v, const std::vector<std::string>& program, const std::string& before) {
  Largest found{{}, v.high + 1};
  auto& [fits, not_above] = found;
  const auto tried = [&](std::int64_t value) {
    const std::string word = fmt::format("{}", value);
    const double share = not_above > v.low ? 1 - double(not_above - fits.value_or(v.low)) / double(v.high + 1 - v.low) : 1;
    const ForecastRow& row = several.run(with_value(program, v.name, word), fmt::format("{}{}={}", before, v.name, word), share * 0.9);
    check(row.status == Status::ok || row.status == Status::oom || several.stopped(), Code::io,
          "--largest: at {}={} there is no answer: {}", v.name, word, row.why);
    return row.fits == true;
  };
  for (std::int64_t value = v.low; value < not_above && !several.stopped();) {
    const bool fitted = tried(value);
    if (several.stopped()) return found;
    if (!fitted) {
      not_above = value;
      break;
    }
    fits = value;
    if (value == v.high) return found;
    value = std::min(v.high, std::max(value + 1, value * 2));
  }
  while (fits && not_above - *fits > 1 && !several.stopped()) {
    const std::int64_t middle = *fits + (not_above - *fits) / 2;
    const bool fitted = tried(middle);
    if (several.stopped()) return found;
    (fitted ? *fits : not_above) = middle;
  }
  return found;
}

std::string words_of(const Varied& range, const Largest& found, bool stopped, const std::string& on) {
  const auto& [most, not_above] = found;
  if (most == range.high) return fmt::format("All of {}={}..{} fits{}", range.name, range.low, range.high, on);
  if (!stopped || (most && not_above - *most == 1) || not_above == range.low)
    return most ? fmt::format("The largest {} that fits{} is {}", range.name, on, *most)
                : fmt::format("Not even {}={} fits{}", range.name, range.low, on);
  const std::string above = not_above <= range.high ? fmt::format("{}={} does not", range.name, not_above) : "larger ones are not known";
  return most ? fmt::format("Stopped: {}={} fits{}, {}", range.name, *most, on, above)
              : fmt::format("Stopped before it is known which {} fits{}", range.name, on);
}

Outcome several_settings(const Forecast& a, const Host& host, Life life) {
  Several several(a, host, life);
  Record r{"forecast", "", {}};
  std::vector<std::string> verdicts;
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
    const std::string on = before.empty() ? fmt::format(" on {}", a.device.name) : fmt::format(" on {} with {}", a.device.name, before);
    verdicts.push_back(words_of(range, most, several.stopped(), on));
  }
  const auto& rows = several.rows();
  if (verdicts.empty()) {
    const auto fit = std::count_if(rows.begin(), rows.end(), [](const ForecastRow& row) { return row.fits == true; });
    verdicts.push_back(fmt::format("{} of {} settings fit on {}", fit, rows.size(), a.device.name));
  }
  r.title = joined(verdicts, "; ") + ".";
  std::vector<ForecastRow> sorted = rows;
  if (!a.largest.empty() && a.sweep.empty())
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& x, const auto& y) { return x.needed_bytes < y.needed_bytes; });
  Table table = table_of("rows", "", sorted);
  leave_out(table, "change");
  table.show("memory_bytes", Show::detail);
  r.add(Part{std::move(table)});
  for (const ForecastRow& row : rows)
    if (!row.why.empty()) r.add(Part{Note{fmt::format("{}: {}", row.setting, row.why), false}});
  if (several.stopped()) {
    std::string said = life.stopped(fmt::format("after {} settings", rows.size()), "");
    return {std::move(r), Answer::failed, std::nullopt, std::move(said)};
  }
  std::string said = life.name();
  return {std::move(r), answer_of(rows), std::move(life), std::move(said)};
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
      t.row.needed_bytes - t.row.memory_bytes <= t.row.fragmented_bytes.value_or(0))
    t.expandable = forecast_one(a, a.program, host, [](std::string_view) {}, {"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"}).row;
  keep(life, t);
  t.tries = a.tries && (t.row.status == Status::ok || t.row.status == Status::oom);
  Outcome outcome{told_record(t, for_people)};
  if (t.tries) {
    const auto tries = tries_of(a, t.row, host);
    for (const ForecastTryRow& row : tries) life.keep("tries " + row.change, with_table("tries", json_of(row)));
    add_tries(tries, t.row, for_people, outcome.record);
  }
  if (a.check && !t.stopped) {
    const Told measured = check_on_card(a, t, output);
    life.keep("measured " + key_of(measured.row), with_table("measured", json_of(measured.row)));
    outcome.record.add(Part{table_of("check", "Forecast against this card", check_rows(t, measured))});
  }
  outcome.answer = t.row.fits == true ? Answer::yes : t.row.status == Status::oom ? Answer::no : Answer::failed;
  outcome.said = t.stopped ? life.stopped(fmt::format("after {} steps", t.row.steps.value_or(0)), "") : life.name();
  if (!t.stopped) outcome.life.emplace(std::move(life));
  return outcome;
}

}  // namespace headroom::studies
