#include "studies/report/cards.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "report/described_table.h"
#include "studies/bench/rows.h"

namespace headroom::studies {

namespace {

std::vector<BenchRow> tables_in(const ReportRun& run) {
  std::vector<BenchRow> tables;
  for (const RowObject& row : run.rows()) tables.push_back(read_described<BenchRow>(row, run.name));
  return tables;
}

std::string card_of(const ReportRun& run) { return run.machine.empty() ? run.name : run.machine; }

struct CardRow {
  std::string card, file;
  std::int64_t measured = 0, tables = 0;
  double minutes = 0;
  std::string version, date;
};
void describe(Of<CardRow> auto& r, auto&& f) {
  f(r.card, {.name = "card"});
  f(r.measured, {.name = "measured", .role = Role::noted});
  f(r.tables, {.name = "tables", .role = Role::noted});
  f(r.minutes, {.name = "minutes", .role = Role::noted});
  f(r.version, {.name = "version", .role = Role::noted});
  f(r.date, {.name = "date", .role = Role::noted});
  f(r.file, {.name = "file", .role = Role::noted});
}

struct NotMeasuredRow {
  std::string card, table;
  Status status{};
  std::string why;
};
void describe(Of<NotMeasuredRow> auto& r, auto&& f) {
  f(r.card, {.name = "card"});
  f(r.table, {.name = "bench"});
  f(r.status, {.name = "status", .role = Role::measured});
  f(r.why, {.name = "why", .role = Role::noted});
}

// A line for each table and peer, a column for each card; a card without that peer has nothing there.
Table means(const std::vector<ReportRun>& runs) {
  Table t{"means", "The peer's time over ours, geometric means: above 1 we are faster", {{"bench"}, {"peer"}}, {}};
  for (const ReportRun& run : runs) t.columns.push_back({card_of(run), Unit::ratio, Show::always, Role::noted});
  for (std::size_t card = 0; card < runs.size(); ++card)
    for (const BenchRow& table : tables_in(runs[card])) {
      if (!holds_cells(runs[card].rows(table.table))) continue;
      for (const BesideRow& b : beside_of(table.table, cells_of(runs[card].rows(table.table)))) {
        const auto same = [&](const auto& row) { return row[0] == Value(b.table) && row[1] == Value(b.peer); };
        auto at = std::find_if(t.rows.begin(), t.rows.end(), same);
        if (at == t.rows.end()) {
          t.add({b.table, b.peer});
          t.rows.back().resize(2 + runs.size());
          at = t.rows.end() - 1;
        }
        if (b.mean) (*at)[2 + card] = *b.mean;
      }
    }
  return t;
}

constexpr double widest_bar = 8;  // beyond it a bar would make the others unreadable: the table has it

std::optional<Chart> picture_of_means(const Table& t) {
  if (t.rows.empty()) return {};
  Chart c{"The peer's time over ours", "", "", Unit::ratio, false, {}, Chart::Kind::bars};
  c.marks.push_back({"as fast", 1});
  std::size_t beyond = 0;
  for (std::size_t card = 2; card < t.columns.size(); ++card) c.series.push_back({t.columns[card].name, {}});
  for (const auto& row :
       t.rows) {  // a peer's bars are below one another, a card each: the first has the name, colours tell the cards apart
    std::string name = fmt::format("{}, {}", std::get<std::string>(row[0]), std::get<std::string>(row[1]));
    for (std::size_t card = 2; card < t.columns.size(); ++card)
      if (const auto* mean = std::get_if<double>(&row[card])) {
        if (*mean > widest_bar && ++beyond) continue;
        c.series[card - 2].points.emplace_back(double(c.ticks.size()), *mean);
        c.ticks.push_back(std::exchange(name, ""));
      }
  }
  if (beyond > 0) c.title += fmt::format(" ({} above {:g} {} in the table below)", beyond, widest_bar, beyond == 1 ? "is" : "are");
  return c;
}

}  // namespace

bool is_bench(const ReportRun& run) {
  return !run.rows().empty() &&
         std::all_of(run.rows().begin(), run.rows().end(), [](const RowObject& row) { return row.contains("bench"); });
}

Record cards_of(const std::vector<ReportRun>& runs) {
  std::vector<CardRow> cards;
  std::vector<NotMeasuredRow> missing;
  Table losses = table_of<LossRow>("losses", "Where a peer is faster", {});
  losses.columns.insert(losses.columns.begin(), {"card"});
  for (const ReportRun& run : runs) {
    CardRow& card = cards.emplace_back(CardRow{.card = card_of(run), .file = run.name, .version = run.version, .date = run.started});
    for (const BenchRow& table : tables_in(run)) {
      card.tables += 1;
      card.measured += table.status == Status::ok;
      card.minutes += table.seconds / 60;
      if (table.status != Status::ok) missing.push_back({card.card, table.title, table.status, table.why});
      if (!holds_cells(run.rows(table.table))) continue;
      for (const LossRow& loss : losses_of(table.table, cells_of(run.rows(table.table)))) {
        losses.add(headroom::cells_of(loss));
        losses.rows.back().insert(losses.rows.back().begin(), card.card);
      }
    }
  }
  Record r{"cards", runs.size() == 1 ? "What was measured" : "The cards beside each other", {}};
  const Table t = means(runs);
  if (auto picture = picture_of_means(t)) r.add(Part{*std::move(picture)});
  r.add(Part{t}).add(Part{std::move(losses)}).add(Part{table_of("cards", "Cards", cards)});
  if (!missing.empty()) r.add(Part{table_of("missing", "What was not measured", missing)});
  return r.add(
      Part{Note{"Peers take turns with us in one run on one card. Times of different cards are not compared. Limits of ours: no bias in "
                "attention; on a GPU head dimensions to 256; Linux on x86-64."}});
}

std::vector<ReportRun> tables_of_bench(const ReportRun& run) {
  std::vector<ReportRun> all;
  for (const BenchRow& table : tables_in(run)) {
    if (run.rows(table.table).empty()) continue;
    ReportRun& one = all.emplace_back(run);
    one.name = table.title;
    one.command.clear();
    one.notes = {fmt::format("{}: {}{}{}", table.docs, table.command, table.made.empty() ? "" : "; measured " + table.made,
                             table.why.empty() ? "" : "; " + table.why)};
    one.tables = {{"rows", run.rows(table.table)}};
    for (RowObject& line : one.tables[0].rows) line.erase("row");  // names the table of the run
  }
  return all;
}

}  // namespace headroom::studies
