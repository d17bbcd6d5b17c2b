#include "studies/results/comparison.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "report/described_table.h"
#include "studies/results/columns.h"
#include "studies/results/rows_table.h"
#include "studies/status.h"

namespace headroom::studies {

namespace {

constexpr double worse_error = 4;     // times as large: another order of the same sums stays below
constexpr double least_error = 1e-7;  // below it an error is rounding of FP32 alone

std::string dumped(const RowObject& j) {  // a number as CSV writes it too: 1.0 is 1
  return j.is_number_float() ? fmt::format("{}", j.get<double>()) : text_of_json(j);
}

bool is_off(const RowObject& value) { return value.is_boolean() && !value.get<bool>(); }

// CSV does not tell nothing from an empty word.
bool says_nothing(const RowObject& value) {
  return value.is_structured() || value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
}

bool has_several(const ComparedRun& run, const std::string& field) {
  std::set<std::string> values;
  for (const RowObject& row : run.rows) {
    const auto at = row.find(field);
    values.insert(at == row.end() || says_nothing(*at) || is_off(*at) ? "" : dumped(*at));
  }
  return values.size() > 1;
}

std::set<std::string> asked_fields(const ComparedRun& run, const Columns& columns) {
  std::set<std::string> fields;
  for (const RowObject& row : run.rows)
    for (const auto& [field, value] : row.items())
      if (!value.is_structured() && columns.asked(field)) fields.insert(field);
  return fields;
}

bool is_flag(const ComparedRun& run, const std::string& field) {
  return std::ranges::all_of(run.rows, [&](const RowObject& row) { return !row.contains(field) || row.at(field).is_boolean(); });
}

// What a row was asked, by the fields that both runs know: a version of the program may know more than the one before. A flag is among them
// if one run knows it, because before it was known it was off.
struct Question {
  std::string key, words;
};
// told: of these fields, those that are in its words.
Question question_of(const RowObject& row, const std::set<std::string>& fields, const std::set<std::string>& told = {}) {
  Question q;
  std::vector<std::string> words;
  for (const auto& [field, value] : row.items()) {
    if (says_nothing(value) || !fields.contains(field) || !told.contains(field)) continue;
    words.push_back(value.is_string() ? value.get<std::string>() : fmt::format("{} {}", field, dumped(value)));
  }
  for (const std::string& field : fields)
    if (const auto at = row.find(field); at != row.end() && !says_nothing(*at) && !is_off(*at)) q.key += field + '=' + dumped(*at) + '\n';
  q.words = joined(words, " ");
  return q;
}

// The fields that tell rows apart; all where none does.
std::set<std::string> telling(const ComparedRun& a, const ComparedRun& b, const std::set<std::string>& fields) {
  ComparedRun both{"", a.rows};
  both.rows.insert(both.rows.end(), b.rows.begin(), b.rows.end());
  std::set<std::string> some;
  for (const std::string& field : fields)
    if (has_several(both, field)) some.insert(field);
  return some.empty() ? fields : some;
}

double number(const RowObject& row, const std::string& name, double otherwise) {
  const auto at = row.find(name);
  return at != row.end() && at->is_number() ? at->get<double>() : otherwise;
}

std::string status_of(const RowObject& row) {  // another program's may be a number
  const auto at = row.find("status");
  return at != row.end() && at->is_string() ? at->get<std::string>() : "ok";
}

// The relative error of the mean of x; a single step says nothing of the next.
std::optional<double> relative_error(const RowObject& row, const std::string& field) {
  const double mean = number(row, field, 0), std = number(row, field + "_std", -1), steps = number(row, "steps", 0);
  if (mean <= 0 || std < 0 || steps < 2) return std::nullopt;
  return std / std::sqrt(steps) / mean;
}

struct Between {
  double low, high;
  std::string words() const { return fmt::format("{} to {} ms", number_in_words(low), number_in_words(high)); }
};

// Where a card's time lies by a forecast.
std::optional<Between> interval_of(const RowObject& row, const std::string& field) {
  const Between b{number(row, field + "_low", 0), number(row, field + "_high", 0)};
  return b.low > 0 && b.high >= b.low ? std::optional(b) : std::nullopt;
}

Verdict verdict_of(Between ratio, double tolerance) {
  if (ratio.low > 1 + tolerance) return Verdict::slower;
  if (ratio.high < 1 / (1 + tolerance)) return Verdict::faster;
  if (ratio.high <= 1 + tolerance && ratio.low >= 1 / (1 + tolerance)) return Verdict::same;
  return Verdict::unclear;
}

// One question's rows of all runs of a setting.
using Again = std::vector<const RowObject*>;
using AgainByQuestion = std::unordered_map<std::string, Again>;

AgainByQuestion again_of(const ComparedRun& run, const std::set<std::string>& fields) {
  AgainByQuestion all;
  for (const auto& rows : run.again)
    for (const RowObject& row : rows) all[question_of(row, fields).key].push_back(&row);
  return all;
}

// How far one run's mean lies from another's, relative to it: by all runs of either setting.
struct BetweenRuns {
  double squares = 0;
  std::size_t freedom = 0, runs[2] = {0, 0};

  void add(int side, const RowObject& own, const Again* others, const std::string& field) {
    std::vector<double> values{number(own, field, 0)};
    if (others)
      for (const RowObject* row : *others)
        if (const double x = number(*row, field, 0); x > 0) values.push_back(x);
    runs[side] = values.size();
    double mean = 0;
    for (const double x : values) mean += x / double(values.size());
    for (const double x : values) squares += (x / mean - 1) * (x / mean - 1);
    freedom += values.size() - 1;
  }
  bool known() const { return freedom > 0; }
  double spread() const {  // nineteen of twenty ratios of two runs lie within
    constexpr double student[] = {12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306};
    const double t = freedom <= std::size(student) ? student[freedom - 1] : 2;
    return t * std::sqrt(2 * squares / double(freedom));
  }
};

class Pair {
 public:
  Pair(const RowObject& a, const RowObject& b, std::string problem, double tolerance, Comparison& into, const Again* again_a,
       const Again* again_b)
      : a_(a), b_(b), again_a_(again_a), again_b_(again_b), problem_(std::move(problem)), tolerance_(tolerance), into_(into) {}

  void compare(const Columns& columns) {
    const std::string was = status_of(a_), is = status_of(b_);
    if (was != is) return change("status", fmt::format("{} → {}", was, is), is != "ok");  // what else is gone follows from it
    for (const auto& [field, value] : a_.items()) {
      const Column& c = columns.of(field);
      if (c.role != Role::measured || value.is_null() || value.is_structured() || field == "status") continue;
      const auto other = b_.find(field);
      if (other == b_.end() || other->is_null())
        change(field, "lost", true);
      else
        compare(c, value, *other);
    }
  }

 private:
  void compare(const Column& c, const RowObject& x, const RowObject& y) {
    if (!x.is_number() || !y.is_number()) {
      if (x != y) change(c.name, "differs", true);
      return;
    }
    const double a = x.get<double>(), b = y.get<double>(), ratio = a != 0 ? b / a : 0;
    switch (c.unit) {
      case Unit::ms: return time(c.name, a, b);
      case Unit::per_s:
      case Unit::bytes_per_s:
      case Unit::flops:
      case Unit::tflops: return rate(c.name, a, b);
      case Unit::bytes:
        if (b > a * (1 + tolerance_)) change(c.name, "more", true, ratio);
        if (b < a / (1 + tolerance_)) change(c.name, "less", false, ratio);
        return;
      case Unit::error:
        if (b > worse_error * std::max(a, least_error)) change(c.name, "worse", true, ratio);
        if (a > worse_error * std::max(b, least_error)) change(c.name, "better", false, ratio);
        return;
      case Unit::exact:
        if (a != b) change(c.name, "differs", true, {}, Unit::exact);
        return;
      default:
        if (std::abs(a - b) > tolerance_ * std::max(std::abs(a), std::abs(b))) change(c.name, "differs", true, ratio);
    }
  }

  void time(const std::string& field, double a, double b) {
    if (a <= 0 && b <= 0) return;
    if (a <= 0 || b <= 0) return change(field, b <= 0 ? "lost" : "new", b <= 0);
    const auto error_a = relative_error(a_, field), error_b = relative_error(b_, field);
    auto spread = error_a && error_b ? std::optional(2 * std::sqrt(*error_a * *error_a + *error_b * *error_b)) : std::nullopt;
    BetweenRuns between;
    between.add(0, a_, again_a_, field);
    between.add(1, b_, again_b_, field);
    if (between.known()) spread = std::max(spread.value_or(0), between.spread());
    const std::size_t bound = field.find("ms_at_least");                                          // a forecast without an interval
    const std::string of_what = field.substr(0, bound == field.npos ? field.size() - 2 : bound);  // "decode_" of decode_ms_at_least
    std::string name = of_what.empty() ? "step" : of_what.substr(0, of_what.size() - 1);
    if (bound != field.npos) name += " at least";
    TimeRow t{.problem = problem_, .time = std::move(name), .a_ms = a, .b_ms = b, .ratio = b / a, .spread = spread};
    if (between.known()) t.runs = fmt::format("{} and {} runs", between.runs[0], between.runs[1]);
    t.verdict = spread ? verdict_of({t.ratio * (1 - *spread), t.ratio * (1 + *spread)}, tolerance_) : Verdict::unclear;
    const auto forecast_a = interval_of(a_, field), forecast_b = interval_of(b_, field);
    if (forecast_a) t.a_interval = forecast_a->words();
    if (forecast_b) t.b_interval = forecast_b->words();
    if ((forecast_a && forecast_b) || bound != field.npos) {  // the same program has the same forecast each time
      t.runs = TimeRow::forecasts;
      t.spread.reset();
      t.verdict = verdict_of({t.ratio, t.ratio}, tolerance_);
    } else if (forecast_a) {
      t.verdict = verdict_of({b / forecast_a->high, b / forecast_a->low}, tolerance_);
    } else if (forecast_b) {
      t.verdict = verdict_of({forecast_b->low / a, forecast_b->high / a}, tolerance_);
    }
    into_.times.push_back(std::move(t));
  }

  void rate(const std::string& field, double a, double b) {  // without a spread: only said
    if (a <= 0 && b <= 0) return;
    if (a <= 0 || b <= 0) return change(field, b <= 0 ? "lost" : "new", b <= 0);
    const double ratio = b / a;
    if (ratio < 1 / (1 + tolerance_)) change(field, "less, unclear", false, ratio);
    if (ratio > 1 + tolerance_) change(field, "more, unclear", false, ratio);
  }

  void change(const std::string& field, std::string verdict, bool difference, std::optional<double> ratio = {}, Unit unit = Unit::none) {
    const auto cell = [&](const RowObject& row) {  // a measured number differs by more than its seventh digit
      const auto at = row.find(field);
      if (at == row.end()) return Value();
      return at->is_number_float() && unit != Unit::exact ? Value(std::stod(fmt::format("{:.6g}", at->get<double>()))) : value_of(*at);
    };
    into_.changes.push_back({problem_, field, cell(a_), cell(b_), ratio, std::move(verdict), difference});
  }

  const RowObject &a_, &b_;
  const Again *again_a_, *again_b_;
  std::string problem_;
  double tolerance_;
  Comparison& into_;
};

}  // namespace

bool Comparison::slower() const { return count(Verdict::slower) > 0; }
bool Comparison::differs() const {
  return slower() || std::any_of(changes.begin(), changes.end(), [](const ChangeRow& c) { return c.difference; });
}
std::size_t Comparison::count(Verdict v) const {
  return std::size_t(std::count_if(times.begin(), times.end(), [&](const TimeRow& t) { return t.verdict == v; }));
}

Comparison compare_runs(const ComparedRun& a, const ComparedRun& b, double tolerance) {
  Comparison c;
  const Columns columns("rows", a.rows.empty() ? b.rows : a.rows);
  const auto fields_a = asked_fields(a, columns), fields_b = asked_fields(b, columns);
  std::set<std::string> both;
  std::set_intersection(fields_a.begin(), fields_a.end(), fields_b.begin(), fields_b.end(), std::inserter(both, both.end()));
  if (both.empty() && !fields_a.empty() && !fields_b.empty()) return c;  // rows that were asked nothing alike are no pairs
  if (columns.described())
    for (const auto* fields : {&fields_a, &fields_b})
      for (const std::string& f : *fields)
        if (columns.of(f).role == Role::asked && is_flag(a, f) && is_flag(b, f)) both.insert(f);
  std::erase_if(both, [&](const std::string& f) { return columns.varied(f) && !has_several(a, f) && !has_several(b, f); });
  const std::set<std::string> told = telling(a, b, both);
  std::set<std::string> common;
  std::set_difference(both.begin(), both.end(), told.begin(), told.end(), std::inserter(common, common.end()));
  if (!a.rows.empty()) c.in_every_row = question_of(a.rows.front(), both, common).words;
  const AgainByQuestion again_a = again_of(a, both), again_b = again_of(b, both);
  const auto others = [](const AgainByQuestion& all, const std::string& key) {
    const auto found = all.find(key);
    return found == all.end() ? nullptr : &found->second;
  };
  std::unordered_map<std::string, std::vector<std::size_t>> partners;  // rows of each question, the last first
  for (std::size_t i = b.rows.size(); i-- > 0;) partners[question_of(b.rows[i], both).key].push_back(i);
  std::vector<bool> used(b.rows.size(), false);
  for (const RowObject& row : a.rows) {
    Question q = question_of(row, both, told);
    const auto at = partners.find(q.key);
    if (at == partners.end() || at->second.empty()) {
      ++c.missing;
      c.changes.push_back({std::move(q.words), "row", Value("there"), {}, {}, "missing"});
      continue;
    }
    const std::size_t other = at->second.back();
    at->second.pop_back();
    used[other] = true;
    ++c.pairs;
    const RowObject& partner = b.rows[other];
    const double step = number(row, "step", -1), loss_a = number(row, "loss", NAN), loss_b = number(partner, "loss", NAN);
    if (step >= 0 && std::isfinite(loss_a) && std::isfinite(loss_b) && (!c.loss || step > double(c.loss->step)))
      c.loss = {std::int64_t(step), loss_a, loss_b};
    const Again *const of_a = others(again_a, q.key), *const of_b = others(again_b, q.key);
    Pair(row, partner, std::move(q.words), tolerance, c, of_a, of_b).compare(columns);
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    ++c.added;
    c.changes.push_back({question_of(b.rows[i], both, told).words, "row", {}, Value("there"), {}, "new", false});
  }
  return c;
}

namespace {

constexpr std::size_t most_bars = 40;  // the largest differences

// How many times as long each time of B is, with its spread.
Chart ratios_of(const std::vector<TimeRow>& rows, const std::string& b) {
  Chart c{fmt::format("Time of {}: how many times the other's", b), "", "", Unit::ratio, false, {{"ratio", {}}}, Chart::Kind::bars};
  c.marks.push_back({"as before", 1});
  std::vector<const TimeRow*> sorted;
  const bool one_time = std::all_of(rows.begin(), rows.end(), [&](const TimeRow& row) { return row.time == rows[0].time; });
  for (const TimeRow& row : rows) sorted.push_back(&row);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const TimeRow* x, const TimeRow* y) { return std::abs(std::log(x->ratio)) > std::abs(std::log(y->ratio)); });
  if (sorted.size() > most_bars) {
    c.title += fmt::format(" (the {} largest differences of {})", most_bars, sorted.size());
    sorted.resize(most_bars);
  }
  for (const TimeRow* row : sorted) {
    c.series[0].points.emplace_back(double(c.ticks.size()), row->ratio);
    c.series[0].spread.push_back(row->ratio * row->spread.value_or(0));
    c.ticks.push_back(shortened(row->problem, 60) + (one_time ? "" : ", " + row->time));
  }
  return c;
}

// "the time of a step is 1.65 ms instead of 1.36 ms: slower".
std::string time_in_words(const TimeRow& t) {
  const auto one = [](double ms, const std::string& interval) {
    return fmt::format("{} ms{}", number_in_words(ms), interval.empty() ? "" : fmt::format(" (forecast {})", interval));
  };
  return fmt::format("the time of {} is {} instead of {}: {}", t.time == "step" ? "a step" : t.time, one(t.b_ms, t.b_interval),
                     one(t.a_ms, t.a_interval), names_of<Verdict>.of(t.verdict));
}

}  // namespace

Record comparison_record(const Comparison& c, const std::string& a, const std::string& b, double tolerance) {
  const auto differences = std::count_if(c.changes.begin(), c.changes.end(), [](const ChangeRow& row) { return row.difference; });
  std::vector<std::string> verdicts;
  for (const Verdict v : {Verdict::slower, Verdict::faster, Verdict::same, Verdict::unclear})
    if (c.count(v) > 0) verdicts.push_back(fmt::format("{} {}", c.count(v), names_of<Verdict>.of(v)));
  std::vector<std::string> answer;
  if (c.loss) {  // what two trainings are compared for
    const std::string was = number_in_words(c.loss->a), is = number_in_words(c.loss->b);
    answer.push_back(
        fmt::format("at step {} the loss is {}", c.loss->step, is == was ? is + " in both" : fmt::format("{} instead of {}", is, was)));
  }
  if (c.times.size() == 1)
    answer.push_back(time_in_words(c.times[0]));
  else if (!c.times.empty())
    answer.push_back(fmt::format("of {} times {}", c.times.size(), joined(verdicts)));
  const char* other = answer.empty() ? "" : "other ";
  const auto untold = differences - std::count_if(c.changes.begin(), c.changes.end(),
                                                  [&](const ChangeRow& row) { return c.loss && row.difference && row.field == "loss"; });
  if (untold > 0) answer.push_back(fmt::format("{} {}{}", untold, other, untold == 1 ? "difference" : "differences"));
  if (untold == 0) answer.push_back(answer.empty() ? "nothing differs" : "nothing else differs");
  if (c.added > 0) answer.push_back(fmt::format("{} only in {}", c.added == 1 ? "1 row is" : fmt::format("{} rows are", c.added), b));
  Record r{"", fmt::format("{} against {}: {}.", b, a, joined(answer, "; ")), {}};
  if (!c.times.empty() || !c.loss) r.add(Part{table_of("rows", fmt::format("{} against {}: time of B over time of A", b, a), c.times)});
  if (!c.times.empty()) r.add(Part{ratios_of(c.times, b)});
  if (!c.changes.empty()) r.add(Part{table_of("changes", "Other differences", c.changes)});
  if (!c.in_every_row.empty()) r.add(Part{Note{"In every row: " + c.in_every_row, false}});
  Record sum{"summary", "", {}};
  sum.add("pairs", std::int64_t(c.pairs));
  for (const Verdict v : {Verdict::faster, Verdict::slower, Verdict::same, Verdict::unclear})
    sum.add(std::string(names_of<Verdict>.of(v)), std::int64_t(c.count(v)));
  sum.add("differences", std::int64_t(differences)).add("missing", std::int64_t(c.missing)).add("new", std::int64_t(c.added));
  sum.add("without_partner", std::int64_t(c.missing + c.added)).add("tolerance", tolerance, Unit::share);
  r.add(Part{std::move(sum)});
  if (std::any_of(c.times.begin(), c.times.end(), [](const TimeRow& t) { return t.runs == TimeRow::one_run_each; }))
    r.add(Part{Note{
        "There is one run of each, so the spread is that of steps within a run; another run of the same command may differ by more. Run "
        "both again with the same --db: compare then uses the spread between runs."}});
  if (std::any_of(c.times.begin(), c.times.end(), [](const TimeRow& t) { return t.runs == TimeRow::forecasts; }))
    r.add(Part{Note{"Both are forecasts: the verdict compares the expected times. On a card each time may be anywhere in its interval."}});
  return r;
}

}  // namespace headroom::studies
