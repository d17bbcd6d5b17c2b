// headroom results [RUN] — the runs of the store, or one run's rows.
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "store/row_objects.h"
#include "studies/results/rows_table.h"
#include "studies/results/run_row.h"

namespace headroom::cli {

namespace {

// As an object in JSON, a line each for people.
Record settings_of(const StoredRun& run) {
  Record r{"settings", "Settings", {}};
  const auto settings = parse_json_or_discard<RowObject>(run.settings);
  if (!settings.is_object()) return r.add("text", run.settings);
  for (const auto& [name, value] : settings.items()) {
    if (!value.is_array()) {
      r.add(name, studies::value_of(value));
      continue;
    }
    std::vector<std::string> words;  // as it was typed: 16,32
    for (const auto& item : value) words.push_back(item.is_string() ? item.get<std::string>() : item.dump());
    r.add(name, joined(words, ","));
  }
  return r;
}

Record one_run(const StoredRun& run, const std::vector<RowObject>& rows) {
  Record r{"", fmt::format("Run {}: {} on {}", run.id, run.command, run.machine), {}};
  r.add("id", run.id).add("command", run.command).add("machine", run.machine).add("version", run.version);
  r.add("started", run.started).add("finished", run.finished.empty() ? Value(std::string(studies::cut_short)) : Value(run.finished));
  r.add(Part{settings_of(run)});
  return r.add(Part{studies::rows_table("rows", "", rows)});
}

Record all_runs(const Results& results) {
  Record r{"", results.file(), {}};
  std::vector<studies::RunRow> rows;
  for (const StoredRun& run : results.runs())
    rows.push_back({.run = run.id,
                    .command = run.command,
                    .machine = run.machine,
                    .rows = run.rows,
                    .started = run.started,
                    .finished = run.finished.empty() ? studies::cut_short : run.finished,
                    .version = run.version,
                    .settings = run.settings});
  Table t = table_of("runs", "", rows);
  t.show("version", Show::detail);
  return r.add(Part{std::move(t)});
}

}  // namespace

RunCommand results(CLI::App& app, Common& common) {
  auto word = std::make_shared<std::string>();
  app.add_option("RUN", *word, "A run's number: show its rows");
  common.machine = Machine::none;
  common.of_kept_runs = true;
  app.footer("Examples:\n  headroom results\n  headroom results 3 --format csv --out run3.csv");
  return [word, &common] {
    const Results store(common.db.empty() ? default_results_file() : common.db, Results::Access::read);
    if (word->empty()) return deliver(all_runs(store), common);
    check(word->find_first_not_of("0123456789") == std::string::npos, Code::bad_argument,
          "'{}' is no run's number; headroom results lists the runs, headroom report shows what is in a file", *word);
    const auto id = parse_integer(*word, "RUN");
    return deliver(one_run(run_kept(&store, id), row_objects(store, id)), common);
  };
}

}  // namespace headroom::cli
