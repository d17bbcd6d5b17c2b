// Two runs held against each other. Rows of the same question (every field that was asked) are paired, and what was measured is
// compared: times with their spread, bytes, errors, and everything else by its value. A row that is missing, a value that was lost, a
// status that changed are differences.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "report/record.h"
#include "store/row_objects.h"

namespace headroom::studies {

struct ComparedRun {
  std::string name;  // as typed
  std::vector<RowObject> rows;
  std::string command{};                        // what made it, as "attention"; empty: not known
  std::vector<std::vector<RowObject>> again{};  // rows of other runs of the same settings: the spread between runs is known by them
};

struct TimedLine {  // a time in a profile: the step, each phase, module and kernel
  std::string problem;
  std::optional<double> step_ms, step_ms_std, gpu_ms, ms;
  std::optional<double> steps;
};
void describe(Of<TimedLine> auto& l, auto&& f) {
  using enum Role;
  f(l.problem, {.name = "problem"});
  f(l.step_ms, {.name = "step_ms", .role = measured, .unit = Unit::ms});
  f(l.step_ms_std, {.name = "step_ms_std", .role = noted, .unit = Unit::ms});
  f(l.steps, {.name = "steps", .role = noted});
  f(l.gpu_ms, {.name = "gpu_ms", .role = measured, .unit = Unit::ms});
  f(l.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
}

enum class Verdict : std::uint8_t { same, faster, slower, unclear };

struct TimeRow {  // one time of a pair
  std::string problem{}, time{};
  double a_ms = 0, b_ms = 0, ratio = 0;
  std::optional<double> spread{};  // relative spread of the ratio: between runs if there are several, else two standard errors within each
  std::string a_interval{}, b_interval{};  // a forecast's: where a card's time lies
  Verdict verdict = Verdict::same;
  std::string runs = one_run_each;
  static constexpr const char *one_run_each = "one run each", *forecasts = "two forecasts";
};

struct ChangeRow {  // one value of a pair that is no time, and is not as it was; or a row that has no partner
  std::string problem, field;
  Value a, b;
  std::optional<double> ratio;
  std::string verdict;     // "more", "less", "worse", "better", "differs", "lost", "missing", "ok → oom"
  bool difference = true;  // else it is only said: fewer bytes, smaller errors, rows that are new
};

struct LastLosses {  // the last step that both trainings kept
  std::int64_t step;
  double a, b;
};

struct Comparison {
  std::vector<TimeRow> times;
  std::vector<ChangeRow> changes;
  std::string in_every_row;                       // settings of all rows, shown once
  std::size_t pairs = 0, missing = 0, added = 0;  // rows without a partner: of A, of B
  std::optional<LastLosses> loss;

  bool slower() const;
  bool differs() const;  // something in B takes longer, needs more, is wrong, or is not there
  std::size_t count(Verdict) const;
};

Comparison compare_runs(const ComparedRun& a, const ComparedRun& b, double tolerance);

// The tables "rows" (times) and "changes", and the record "summary".
Record comparison_record(const Comparison&, const std::string& a, const std::string& b, double tolerance);

}  // namespace headroom::studies

namespace headroom {
template <>
inline constexpr auto names_of<studies::Verdict> = names<studies::Verdict>("same", "faster", "slower", "unclear");
}

namespace headroom::studies {
void describe(Of<TimeRow> auto& r, auto&& f) {
  using enum Role;
  f(r.problem, {.name = "problem"});
  f(r.time, {.name = "time"});
  f(r.a_ms, {.name = "a_ms", .role = noted, .unit = Unit::ms});
  f(r.b_ms, {.name = "b_ms", .role = noted, .unit = Unit::ms});
  f(r.ratio, {.name = "ratio", .role = noted, .unit = Unit::ratio});
  f(r.spread, {.name = "spread", .role = noted, .unit = Unit::share});
  f(r.a_interval, {.name = "a_interval", .role = noted});
  f(r.b_interval, {.name = "b_interval", .role = noted});
  f(r.verdict, {.name = "verdict", .role = noted});
  f(r.runs, {.name = "runs", .role = noted});
}
void describe(Of<ChangeRow> auto& r, auto&& f) {
  using enum Role;
  f(r.problem, {.name = "problem"});
  f(r.field, {.name = "field"});
  f(r.a, {.name = "a", .role = noted, .unit = Unit::exact});
  f(r.b, {.name = "b", .role = noted, .unit = Unit::exact});
  f(r.ratio, {.name = "ratio", .role = noted, .unit = Unit::ratio});
  f(r.verdict, {.name = "verdict", .role = noted});
  f(r.difference, {.name = "difference", .role = noted});
}
}  // namespace headroom::studies
