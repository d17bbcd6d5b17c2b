#include "studies/report/report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "base/device_names.h"
#include "base/error.h"
#include "base/text.h"
#include "instruments/profile/activity_file.h"
#include "report/render.h"
#include "studies/report/cards.h"
#include "studies/report/parts.h"
#include "studies/results/columns.h"
#include "studies/results/rows_table.h"
#include "studies/results/run_row.h"

namespace headroom::studies {

namespace {

constexpr double tolerance = 0.02;

// A line of a profile's table as a row of a comparison: what it is of, its time, and how sure that is.
RowObject profile_line(const std::string& table, const RowObject& row) {
  std::vector<std::string> words;
  for (const char* field : {"phase", "module", "part", "kernel"})
    if (row.contains(field) && row[field].is_string()) words.push_back(row[field]);
  std::erase(words, "");
  TimedLine line;
  line.problem = fmt::format("{}{}{}", table, words.empty() ? "" : ": ", joined(words, ", "));
  const auto take = [&](const char* field, std::optional<double>& into) {
    if (row.contains(field) && row[field].is_number()) into = row[field].get<double>();
  };
  take("step_ms", line.step_ms);
  take("step_ms_std", line.step_ms_std);
  take("steps", line.steps);
  take("gpu_ms", line.gpu_ms);
  take("ms", line.ms);
  return json_of(line);
}

Record differences(const ReportRun& a, const ReportRun& b) {
  Record r{"differences", fmt::format("{} against {}", b.name, a.name), {}};
  const Comparison c = compare_runs(compared(a), compared(b), tolerance);
  if (c.pairs == 0) return r.add(Part{Note{"These two runs have no problem in common, so nothing can be compared."}});
  Record said = comparison_record(c, a.name, b.name, tolerance);
  r.title = said.title;
  for (Part& p : said.parts)
    if (const auto* summary = std::get_if<Record>(&p.is))
      for (const Part& field : summary->parts) r.add(field);
  if (!c.times.empty())
    r.add(
        Part{Note{"A verdict needs the whole spread (two standard errors) beyond the tolerance. It is unclear if the spread crosses it, or "
                  "is not known."}});
  for (Part& p : said.parts)
    if (std::holds_alternative<Chart>(p.is)) r.add(std::move(p));
  add_loss_curves(compared(a), compared(b), r);
  for (Part& p : said.parts)
    if (std::holds_alternative<Table>(p.is)) r.add(std::move(p));
  return r;
}

// What the program knows of a machine by its name, if none was measured.
void add_known(const Device& d, Record& into) {
  const bool has_memory = std::ranges::any_of(into.parts, [](const Part& p) {  // what a file said of it: what a program may have of all
    const auto* field = std::get_if<Field>(&p.is);
    return field && field->name == "memory_bytes";
  });
  if (!has_memory) into.add("memory_bytes", std::int64_t(d.memory_bytes), Unit::bytes);
  into.add("units", std::int64_t(d.units));
  const Ceilings& c = d.ceilings;
  const std::pair<const char*, double> rates[] = {
      {"fp32", c.fp32_flops}, {"tf32", c.tf32_flops}, {"bf16", c.bf16_flops}, {"fp16", c.fp16_flops}, {"fp8", c.fp8_flops}};
  if (c.copy_bytes_per_s > 0) into.add("copy", c.copy_bytes_per_s, Unit::bytes_per_s);
  for (const auto& [dtype, rate] : rates)
    if (rate > 0) into.add(fmt::format("{}_matmul", dtype), rate, Unit::flops);
  into.add(Part{Note{fmt::format("The machine known by this name ({}). headroom device measures the machine that is present.", c.source)}});
}

// The machine, as files describe it and as headroom device measured it last.
Record machine(const std::string& name, const std::vector<ReportRun>& runs, const Results* store) {
  Record r{"machine", name, {}};
  for (const ReportRun& run : runs) {
    if (run.machine != name || run.device.empty()) continue;
    const Columns columns("device", {&run.device, 1});
    for (const auto& [field, value] : run.device.items()) r.add(field, value_of(value), columns.of(field).unit);
    break;
  }
  for (const StoredRun& run : store ? store->runs() : std::vector<StoredRun>()) {
    if (run.command != "device" || run.machine != name || run.finished.empty()) continue;
    auto rows = row_objects(*store, run.id);
    for (RowObject& row : rows) {
      for (auto& [field, value] : row.items())
        if (field.ends_with("_per_s") && value.is_number() && value == 0) value = nullptr;  // a copy has no FLOPs
      if (row.contains("sm_mhz") && row["sm_mhz"] == 0) {                                   // a CPU's are not sampled
        row.erase("sm_mhz");
        row.erase("held_back");
      }
    }
    return r.add(Part{rows_table("ceilings", fmt::format("Its ceilings, measured in run {} ({})", run.id, run.started), rows)});
  }
  if (const Device* d = known_as(name)) {
    add_known(*d, r);
    return r;
  }
  return r.add(Part{Note{"Its ceilings are not in the store; headroom device measures and keeps them."}});
}

Table what_was_run(const std::vector<ReportRun>& runs) {
  std::vector<RunRow> rows;
  for (const ReportRun& run : runs) {
    RunRow& row = rows.emplace_back();
    const auto known = [](const std::string& s) { return s.empty() ? std::nullopt : std::optional(s); };
    row.run = run.name;
    row.command = known(run.command);
    row.machine = known(run.machine);
    for (const RowTable& table : run.tables) row.rows += std::int64_t(table.rows.size());
    row.started = known(run.started);
    row.finished = !run.started.empty() && run.finished.empty() ? cut_short : known(run.finished);
    row.version = known(run.version);
    if (!run.settings.empty()) row.settings = value_of(run.settings);
  }
  Table t = table_of("runs", "", rows);
  for (std::size_t c = 1; c < t.columns.size(); ++c)
    if (std::all_of(t.rows.begin(), t.rows.end(), [&](const auto& row) { return row[c] == Value(); })) t.columns[c].show = Show::detail;
  return t;
}

std::string in_every_row(const std::string& column, const Value& v) {
  if (const auto* word = std::get_if<std::string>(&v)) return word->empty() ? "" : fmt::format("{} {}", column, *word);
  if (const auto* i = std::get_if<std::int64_t>(&v)) return fmt::format("{} {}", column, *i);
  if (const auto* d = std::get_if<double>(&v)) return fmt::format("{} {:.6g}", column, *d);
  return "";
}

// What is the same in every row is said once; people need no column for it.
std::string fold_columns(Table& t) {
  std::vector<std::string> same;
  if (t.rows.size() < 3) return "";
  if (std::all_of(t.rows.begin(), t.rows.end(), [&](const auto& row) { return row == t.rows[0]; })) return "";  // a table needs a column
  for (std::size_t c = 0; c < t.columns.size(); ++c) {
    if (!std::all_of(t.rows.begin(), t.rows.end(), [&](const auto& row) { return row[c] == t.rows[0][c]; })) continue;
    if (t.columns[c].name == "status") continue;
    t.columns[c].show = Show::detail;
    if (const std::string words = in_every_row(t.columns[c].name, t.rows[0][c]); !words.empty()) same.push_back(words);
  }
  return joined(same, " · ");
}

// Words tell rows apart, numbers are what came out: short words that differ stand first.
void words_first(Table& t) {
  constexpr std::size_t most_letters = 60;
  const auto tells = [&](std::size_t c) {
    const auto is_word = [&](const auto& row) { return std::holds_alternative<std::string>(row[c]); };
    const auto is_short = [&](const auto& row) {
      return row[c] == Value() || (is_word(row) && std::get<std::string>(row[c]).size() <= most_letters);
    };
    const auto differs = [&](const auto& row) { return row[c] != t.rows.front()[c]; };
    return t.columns[c].show != Show::detail && std::any_of(t.rows.begin(), t.rows.end(), differs) &&
           std::any_of(t.rows.begin(), t.rows.end(), is_word) && std::all_of(t.rows.begin(), t.rows.end(), is_short);
  };
  std::vector<std::size_t> order(t.columns.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_partition(order.begin(), order.end(), tells);
  const auto in_order = [&](auto& cells) {
    auto moved = cells;
    for (std::size_t c = 0; c < order.size(); ++c) moved[c] = cells[order[c]];
    cells = std::move(moved);
  };
  for (auto& row : t.rows) in_order(row);
  in_order(t.columns);
}

// Kernels by their short names, as long as those tell them apart.
void shorten_kernels(Table& t) {
  for (std::size_t c = 0; c < t.columns.size(); ++c) {
    if (t.columns[c].name != "kernel" && t.columns[c].name != "after" && t.columns[c].name != "before") continue;
    std::map<std::string, std::set<std::string>> meant;
    const auto name = [&](auto& row) { return std::get_if<std::string>(&row[c]); };
    for (auto& row : t.rows)
      if (const auto* full = name(row)) meant[profile::short_name(*full)].insert(*full);
    for (auto& row : t.rows)
      if (auto* full = name(row))
        if (std::string brief = profile::short_name(*full); meant[brief].size() == 1) *full = std::move(brief);
  }
}

// What is said of a profile as a whole: not a table of one row.
void add_whole(const ReportRun& run, Record& into) {
  if (run.rows("step").size() != 1) return;
  const Columns columns("step", run.rows("step"));
  for (const auto& [field, value] : run.rows("step")[0].items())
    if (!value.is_null()) into.add(field, value_of(value), columns.of(field).unit);
}

// Long tables that a chart shows come last, and those that were read from a file's own analysis give way to ours.
void add_tables(const ReportRun& run, Record& into) {
  std::set<std::string> there;
  for (const Part& p : into.parts)
    if (const auto* t = std::get_if<Table>(&p.is)) there.insert(t->name);
  const auto is_long = [](const RowTable& t) { return t.name == "timeline" || t.name == "memory"; };
  for (const bool longs : {false, true})
    for (const RowTable& rows : run.tables) {
      if (is_long(rows) != longs || there.contains(rows.name) || (rows.name == "step" && rows.rows.size() == 1)) continue;
      Table t = rows_table(rows.name, title_of(rows.name), rows.rows);
      const std::string same = fold_columns(t);
      if (rows.name == "rows") words_first(t);
      shorten_kernels(t);
      into.add(Part{std::move(t)});
      if (!same.empty()) into.add(Part{Note{"In every row: " + same, false}});
    }
}

// Charts first, what is to be said of them next, tables last.
void in_reading_order(Record& r) {
  const auto place = [](const Part& p) { return std::holds_alternative<Chart>(p.is) ? 0 : std::holds_alternative<Note>(p.is) ? 1 : 2; };
  std::stable_sort(r.parts.begin(), r.parts.end(), [&](const Part& a, const Part& b) { return place(a) < place(b); });
}

Record section(const ReportRun& run) {
  Record r{run.name, run.name, {}};
  if (!run.command.empty()) r.title = fmt::format("{}: {}", run.name, shortened(run.command, 72));
  if (!run.machine.empty()) r.title += " on " + run.machine;
  if (!add_attention(run, r)) add_growth(run, r);
  add_step(run, r);
  add_train(run, r);
  add_plan(run, r);
  add_profile(run, r);
  add_program(run, r);
  add_forecast(run, r);
  in_reading_order(r);
  Record whole;
  add_whole(run, whole);
  r.parts.insert(r.parts.begin(), whole.parts.begin(), whole.parts.end());
  for (const std::string& note : run.notes) r.add(Part{Note{note}});
  add_tables(run, r);
  return r;
}

}  // namespace

std::string kind_of(const std::string& command) {
  const auto space = command.find(' ');
  const std::string kind = space == std::string::npos ? command : command.substr(space + 1, command.find(' ', space + 1) - space - 1);
  for (const char* of_any : {"results", "compare", "report", "bench"})
    if (kind == of_any) return "";
  return kind;
}

bool of_one_kind(const std::string& a, const std::string& b) {
  const std::string of_a = kind_of(a), of_b = kind_of(b);
  const auto of_programs = [](const std::string& kind) { return kind == "forecast" || kind == "profile"; };
  return of_a.empty() || of_b.empty() || of_a == of_b || (of_programs(of_a) && of_programs(of_b));
}

ComparedRun compared(const ReportRun& run) {
  ComparedRun c{run.name, {}, run.command};
  c.rows = run.rows();
  if (!c.rows.empty()) return c;
  const auto add = [&](const char* table, const char* called) {
    for (const RowObject& row : run.rows(table))
      if (RowObject line = profile_line(called, row); c.rows.empty() || line["problem"] != c.rows[0]["problem"])
        c.rows.push_back(std::move(line));
  };
  add("step", "step");
  add("work", "step");  // the smaller steps beside the whole
  for (const char* table : {"phases", "modules", "kernels"}) add(table, table);
  return c;
}

std::string title_of(const std::string& table) {
  constexpr std::pair<const char*, const char*> titles[] = {{"rows", "Every row"},
                                                            {"kernels", "Kernels by total time"},
                                                            {"phases", "Phases"},
                                                            {"modules", "Modules"},
                                                            {"layers", "Layers"},
                                                            {"work", "Matmul against the rest"},
                                                            {"attention", "Softmax against the matmuls of attention"},
                                                            {"roofline", "Ops against the ceilings"},
                                                            {"gaps", "Gaps in which nothing runs"},
                                                            {"pauses", "Pauses of 10 ms and longer"},
                                                            {"timeline", "Every slice of the timeline"},
                                                            {"memory", "Every allocation and its end"},
                                                            {"at_peak", "Allocated at the peak"},
                                                            {"saved", "Saved for backward"},
                                                            {"curve", "Live bytes"},
                                                            {"tries", "What removes bytes"}};
  for (const auto& [name, title] : titles)
    if (table == name) return title;
  std::string words = table;
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::vector<ReportRun> newest_runs(const Results& results) {
  std::vector<ReportRun> out;
  std::set<std::pair<std::string, std::string>> taken;
  for (const StoredRun& run : results.runs())
    if (run.rows > 0 && run.command != "device" && taken.emplace(run.command, run.machine).second)
      out.insert(out.begin(), run_from_store(results, run));
  return out;
}

Record with_charts(Record r) try {
  const auto is_chart = [](const Part& p) { return std::holds_alternative<Chart>(p.is); };
  if (std::any_of(r.parts.begin(), r.parts.end(), is_chart)) return r;
  Record drawn = section(run_from_text(render_json(r), "page"));
  const auto at = std::find_if(r.parts.begin(), r.parts.end(), [](const Part& p) { return std::holds_alternative<Table>(p.is); });
  drawn.parts.erase(std::remove_if(drawn.parts.begin(), drawn.parts.end(), [&](const Part& p) { return !is_chart(p); }), drawn.parts.end());
  r.parts.insert(at, std::make_move_iterator(drawn.parts.begin()), std::make_move_iterator(drawn.parts.end()));
  return r;
} catch (const Error&) { return r; }  // rows that no report knows

Record report_of(const std::vector<ReportRun>& runs, const Results* store) {
  Record r{"report", runs.size() == 1 ? fmt::format("Headroom: {}", runs[0].name) : "Headroom: report", {}};
  if (runs.empty())
    return r.add(
        Part{Note{"Nothing has been measured yet. Try headroom attention, headroom step or headroom device, then write this page again."}});
  if (std::all_of(runs.begin(), runs.end(), is_bench)) {
    r.title = "Headroom: bench";
    r.add(Part{cards_of(runs)});
    for (const ReportRun& card : runs)
      for (const ReportRun& table : tables_of_bench(card)) r.add(Part{section(table)});
    return r;
  }
  if (runs.size() == 2 && of_one_kind(runs[0].command, runs[1].command)) {
    Record between = differences(runs[0], runs[1]);
    std::string heading = fmt::format("{} against {}", runs[1].name, runs[0].name);
    if (between.title != heading) r.title = between.title;  // the page's title is the verdict
    between.title = std::move(heading);
    r.add(Part{std::move(between)});
  }
  Record machines{"machines", "Machines", {}};
  std::set<std::string> names;
  for (const ReportRun& run : runs)
    if (!run.machine.empty() && names.insert(run.machine).second) machines.add(Part{machine(run.machine, runs, store)});
  if (!machines.parts.empty()) r.add(Part{std::move(machines)});
  Record all{"what_was_run", "What was run", {}};
  r.add(Part{all.add(Part{what_was_run(runs)})});
  for (const ReportRun& run : runs) r.add(Part{section(run)});
  return r;
}

}  // namespace headroom::studies
