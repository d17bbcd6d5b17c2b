// What was forecast against what was measured: every field that has a forecast_ of its own beside it.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "studies/report/parts.h"
#include "studies/results/columns.h"

namespace headroom::studies {

namespace {

struct Pair {
  double forecast, measured;
  std::string who, what;  // the line it belongs to; the row in words
};

std::string row_in_words(const RowObject& row) {
  std::vector<std::string> words;
  for (const char* field : {"model", "dtype", "precision", "dim", "len", "len_q", "mask", "batch"})
    if (row.contains(field)) {
      const auto& v = row[field];
      words.push_back(v.is_string() ? v.get<std::string>() : fmt::format("{} {}", field, v.dump()));
    }
  return joined(words, " ");
}

std::map<std::string, std::vector<Pair>> pairs_in(const std::vector<RowObject>& rows) {
  std::map<std::string, std::vector<Pair>> out;
  constexpr std::string_view prefix = "forecast_";
  for (const RowObject& row : rows)
    for (const auto& [field, forecast] : row.items()) {
      if (!field.starts_with(prefix) || !forecast.is_number()) continue;
      const std::string name = field.substr(prefix.size());
      const auto measured = row.find(name);
      if (measured == row.end() || !measured->is_number() || forecast.get<double>() <= 0 || measured->get<double>() <= 0) continue;
      const auto who = [&](const char* key) { return row.contains(key) && row[key].is_string() ? row[key].get<std::string>() : ""; };
      const std::string line = !who("variant").empty() ? who("variant") : !who("phase").empty() ? who("phase") : "rows";
      out[name].push_back({forecast.get<double>(), measured->get<double>(), line, row_in_words(row)});
    }
  return out;
}

}  // namespace

void add_forecast(const ReportRun& run, Record& into) {
  const Columns columns("rows", run.rows());
  for (const auto& [field, pairs] : pairs_in(run.rows())) {
    Chart c{fmt::format("Forecast against measured: {}", field), "forecast", "measured", columns.of(field).unit, true, {}};
    c.x_unit = columns.of(field).unit;
    double low = pairs[0].forecast, high = low, worst = 0;
    std::int64_t equal = 0;
    for (const Pair& p : pairs) {
      low = std::min({low, p.forecast, p.measured});
      high = std::max({high, p.forecast, p.measured});
      worst = std::max(worst, std::abs(p.measured / p.forecast - 1));
      equal += p.measured == p.forecast;
      auto line = std::find_if(c.series.begin(), c.series.end(), [&](const auto& s) { return s.name == p.who; });
      if (line == c.series.end()) line = c.series.insert(line, {p.who, {}, {}, false});
      line->points.emplace_back(p.forecast, p.measured);
      line->names.push_back(p.what);
    }
    c.series.push_back({"as forecast", {{low, low}, {high, high}}, {}, true, "as forecast"});
    into.add(Part{std::move(c)});
    into.add(Part{Note{fmt::format("{} of {} rows: {} measured is as forecast to the digit; the largest difference is {:.2g} %.", equal,
                                   pairs.size(), field, 100 * worst),
                       false}});
  }
}

}  // namespace headroom::studies
