// A forecast of a program: its live bytes, its phases, what is allocated at the peak; of several settings, what each needs.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "studies/report/parts.h"

namespace headroom::studies {

namespace {

constexpr std::size_t most_program_bars = 16;

void add_curve(const ReportRun& run, Record& into) {
  const auto& all = run.rows("curve");
  if (all.empty() || !all.front().contains("allocated_bytes") || !all.front().contains("reserved_bytes")) return;
  const double rank = number_at(all.front(), "rank");  // the one that needs most is first
  Chart c{"Live bytes over the run", "share of the run", "", Unit::bytes, false, {{"allocated", {}}, {"reserved", {}}}};
  double highest = 0;
  std::vector<const RowObject*> rows;
  for (const RowObject& row : all)
    if (number_at(row, "rank") == rank) rows.push_back(&row);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double x = double(i) / double(std::max<std::size_t>(rows.size() - 1, 1));
    c.series[0].points.emplace_back(x, number_at(*rows[i], "allocated_bytes"));
    c.series[0].names.push_back(text_at(*rows[i], "phase"));
    c.series[1].points.emplace_back(x, number_at(*rows[i], "reserved_bytes"));
    highest = std::max(highest, number_at(*rows[i], "reserved_bytes"));
  }
  if (!run.rows().empty()) {
    const RowObject& row = run.rows().front();
    const double room = number_at(row, "memory_bytes") - number_at(row, "beside_bytes");
    if (room > 0 && room < 4 * highest) c.marks.push_back({"memory less what is beside", room});
  }
  if (rows.size() > 1) into.add(Part{std::move(c)});
}

void add_peaks(const std::vector<RowObject>& rows, const char* title, const char* word, const char* bytes, Record& into) {
  Chart c{title, word, "", Unit::bytes, false, {{"bytes", {}}}, Chart::Kind::bars};
  std::vector<std::pair<std::string, double>> sums;
  for (const RowObject& row : rows) {
    const std::string name = text_at(row, word);
    if (name.empty() || number_at(row, "rank") != number_at(rows.front(), "rank")) continue;
    const auto at = std::find_if(sums.begin(), sums.end(), [&](const auto& s) { return s.first == name; });
    if (at == sums.end())
      sums.emplace_back(name, number_at(row, bytes));
    else
      at->second += number_at(row, bytes);
  }
  if (sums.size() > most_program_bars) sums.resize(most_program_bars);
  for (const auto& [name, sum] : sums) {
    c.series[0].points.emplace_back(double(c.ticks.size()), sum);
    c.ticks.push_back(shortened(name, 60));
  }
  if (c.ticks.size() > 1) into.add(Part{std::move(c)});
}

}  // namespace

void add_program(const ReportRun& run, Record& into) {
  add_curve(run, into);
  const auto of_forecast = [](const std::vector<RowObject>& rows, const char* field) {
    return !rows.empty() && rows.front().contains(field);
  };
  if (of_forecast(run.rows("phases"), "peak_reserved_bytes"))
    add_peaks(run.rows("phases"), "Peak by phase", "phase", "peak_allocated_bytes", into);
  if (of_forecast(run.rows("at_peak"), "what")) {
    add_peaks(run.rows("at_peak"), "Allocated at the peak", "what", "bytes", into);
    add_peaks(run.rows("at_peak"), "Allocated at the peak, by line", "line", "bytes", into);
  }
  if (of_forecast(run.rows(), "peak_reserved_bytes") && of_forecast(run.rows(), "setting") && run.rows().size() > 1)
    add_peaks(run.rows(), "Needed by each setting", "setting", "needed_bytes", into);
  if (of_forecast(run.rows("tries"), "saves_bytes"))
    add_peaks(run.rows("tries"), "What removes bytes: needed with each change", "change", "needed_bytes", into);
}

}  // namespace headroom::studies
