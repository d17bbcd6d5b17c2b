// Times and bytes over a length, from rows of any study. Settings other than the length tell the lines apart.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "memory/account.h"
#include "studies/report/parts.h"
#include "studies/results/columns.h"

namespace headroom::studies {

namespace {

constexpr std::size_t most_lines = 6;  // lines that one chart holds before a choice is offered

struct Axis {
  std::string field;
  std::vector<double> at;  // each row's; NaN where it has none
};

double number_at(const RowObject& row, const std::string& field) {
  const auto cell = row.find(field);
  return cell != row.end() && cell->is_number() ? cell->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::optional<Axis> length_of(const std::vector<RowObject>& rows) {
  for (const char* field : {"len_q", "len", "seq_len", "n"}) {
    Axis axis{field, {}};
    std::set<double> different;
    for (const auto& row : rows) {
      axis.at.push_back(number_at(row, field));
      if (axis.at.back() > 0) different.insert(axis.at.back());
    }
    if (different.size() >= 2) return axis;
  }
  return {};
}

// Fields of the question: those that tell rows of one length apart, and those that the length determines, as a batch that shrinks as it
// grows.
struct Question {
  std::vector<std::string> apart, determined;
};

// Whether `field` says no more than `by` does, as a model's name says its parameters.
bool says_no_more(const std::vector<RowObject>& rows, const std::string& field, const std::string& by) {
  std::map<std::string, RowObject> meant;
  return std::all_of(rows.begin(), rows.end(), [&](const RowObject& row) {
    if (!row.contains(field) || !row.contains(by) || !row[field].is_number() || !row[by].is_string()) return false;
    return meant.try_emplace(row[by].get<std::string>(), row[field]).first->second == row[field];
  });
}

Question question_of(const std::vector<RowObject>& rows, const Columns& columns, const Axis& axis) {
  std::map<std::string, std::map<double, std::set<std::string>>> seen;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const auto& [field, value] : rows[i].items())
      if (!value.is_structured() && !value.is_number_float() && columns.asked(field) && field != axis.field)
        seen[field][axis.at[i]].insert(text_of_json(value));
  Question out;
  for (const auto& [field, value] : rows.front().items()) {
    const auto at = seen.find(field);
    if (at == seen.end()) continue;
    std::set<std::string> all;
    for (const auto& [len, words] : at->second) all.insert(words.begin(), words.end());
    const bool tells = std::any_of(at->second.begin(), at->second.end(), [](const auto& x) { return x.second.size() > 1; });
    if (tells)
      out.apart.push_back(field);
    else if (all.size() > 1 && !field.starts_with("len"))
      out.determined.push_back(field);
  }
  std::erase_if(out.apart, [&, named = out.apart](const std::string& field) {
    return std::any_of(named.begin(), named.end(), [&](const std::string& by) { return says_no_more(rows, field, by); });
  });
  return out;
}

std::string said(const RowObject& row, const std::vector<std::string>& fields, std::string_view between) {
  std::vector<std::string> words;
  for (const auto& field : fields)
    if (row.contains(field)) {
      const auto& v = row[field];
      words.push_back(v.is_string() ? v.get<std::string>() : fmt::format("{} {}", field, v.dump()));
    }
  return joined(words, between);
}

struct Measure {
  std::string field, title, line;  // line: what a line of it is called beside others
};

// Charts and the fields that share one: each of a variant's measures has its own chart; peers measured side by side share it.
std::vector<std::vector<Measure>> measures_of(const std::vector<RowObject>& rows, const Columns& columns, bool by_variant) {
  std::vector<std::vector<Measure>> charts;
  std::vector<Measure> times, bytes;
  for (const auto& [field, value] : rows.front().items()) {
    if (field.starts_with("forecast_")) continue;
    const Unit unit = columns.of(field).unit;
    const auto without = [&field = field](std::string_view end) {
      return field.ends_with(end) ? field.substr(0, field.size() - end.size()) : field;
    };
    if (unit == Unit::ms && !field.ends_with("_std")) times.push_back({field, "Milliseconds", field == "ms" ? "" : without("_ms")});
    if (unit == Unit::bytes) bytes.push_back({field, "Bytes", field == "bytes" ? "" : without("_bytes")});
  }
  for (auto* list : {&times, &bytes}) {
    if (list->empty()) continue;
    if (!by_variant) {
      charts.push_back(*list);
      continue;
    }
    for (const Measure& m : *list) charts.push_back({{m.field, m.field, ""}});
  }
  return charts;
}

void add_charts(const std::vector<RowObject>& rows, const Columns& columns, const Axis& axis, const std::vector<Measure>& measures,
                const std::vector<std::string>& apart, Record& into) {
  std::vector<std::string> lines = apart, choices;  // fields that tell lines apart, and those that the reader chooses by
  const auto count = [&](const std::vector<std::string>& fields) {
    std::set<std::string> different;
    for (const auto& row : rows) different.insert(said(row, fields, "|"));
    return different.size();
  };
  const auto first_choice = [&] {  // the variant and the phase stay lines as long as anything else can be chosen
    return std::find_if(lines.begin(), lines.end(), [](const std::string& f) { return f != "variant" && f != "phase" && f != "kernel"; });
  };
  while (count(lines) * measures.size() > most_lines && first_choice() != lines.end()) {
    choices.push_back(*first_choice());
    lines.erase(first_choice());
  }
  std::vector<Chart> charts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string choice = said(rows[i], choices, " · ");
    auto chart = std::find_if(charts.begin(), charts.end(), [&](const Chart& c) { return c.choice == choice; });
    if (chart == charts.end()) {
      const Unit unit = columns.of(measures[0].field).unit;
      charts.push_back(
          {fmt::format("{} over {}", measures[0].title, axis.field), axis.field, unit == Unit::ms ? "ms" : "", unit, true, {}});
      chart = charts.end() - 1;
      chart->choice = choice;
    }
    for (const Measure& m : measures) {
      const double y = number_at(rows[i], m.field);
      if (!(y > 0) || !(axis.at[i] > 0)) continue;
      std::string name = said(rows[i], lines, " ");
      if (!m.line.empty()) name += (name.empty() ? "" : " ") + m.line;
      if (name.empty()) name = m.field;
      auto line = std::find_if(chart->series.begin(), chart->series.end(), [&](const auto& s) { return s.name == name; });
      if (line == chart->series.end()) line = chart->series.insert(line, {name, {}});
      line->points.emplace_back(axis.at[i], y);
    }
  }
  for (Chart& c : charts) {
    std::erase_if(c.series, [](const auto& s) { return s.points.size() < 2; });
    for (auto& s : c.series) {
      std::sort(s.points.begin(), s.points.end());
      s.name = with_exponent(s.name, s.points);
    }
    if (!c.series.empty()) into.add(Part{std::move(c)});
  }
}

}  // namespace

std::string with_exponent(const std::string& name, const std::vector<std::pair<double, double>>& points) {
  return points.size() < 2 ? name : fmt::format("{} · ~ len^{:.2f}", name, growth_exponent(points));
}

void add_growth(const ReportRun& run, Record& into) {
  const auto& rows = run.rows();
  if (rows.empty()) return;
  const auto axis = length_of(rows);
  if (!axis) return;
  const Columns columns("rows", rows);
  const auto [apart, determined] = question_of(rows, columns, *axis);
  const bool by_variant = std::find(apart.begin(), apart.end(), "variant") != apart.end();
  for (const auto& measures : measures_of(rows, columns, by_variant)) add_charts(rows, columns, *axis, measures, apart, into);
  if (!determined.empty())
    into.add(
        Part{Note{fmt::format("{} changes with {} in these rows: an exponent is of both together.", joined(determined), axis->field)}});
}

}  // namespace headroom::studies
