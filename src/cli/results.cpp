// headroom results [RUN] — the runs of the store, or one run's rows.
#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "store/row_objects.h"

namespace headroom::cli {

namespace {

Value value_of(const RowObject& j) {
  if (j.is_boolean()) return j.get<bool>();
  if (j.is_number_integer()) return j.get<std::int64_t>();
  if (j.is_number()) return j.get<double>();
  if (j.is_string()) return j.get<std::string>();
  return j.is_null() ? Value() : Value(j.dump());
}

Unit unit_of(const std::string& name) { return name.ends_with("_bytes") ? Unit::bytes : name.ends_with("_ms") ? Unit::ms : Unit::none; }

// Any command's rows: the columns are the fields, in the order in which they first appear. A page is too narrow for spreads.
Table table_of(const std::vector<RowObject>& rows) {
  Table t{"rows", "", {}, {}};
  for (const auto& row : rows)
    for (const auto& [name, value] : row.items())
      if (std::none_of(t.columns.begin(), t.columns.end(), [&](const Column& c) { return c.name == name; })) {
        const bool narrow = name.ends_with("_std") || name.starts_with("max_error_d") || name == "device" || name == "why";
        t.columns.push_back({name, unit_of(name), narrow ? Show::detail : Show::always});
      }
  for (const auto& row : rows) {
    std::vector<Value> cells;
    for (const Column& c : t.columns) cells.push_back(row.contains(c.name) ? value_of(row[c.name]) : Value());
    t.add(std::move(cells));
  }
  return t;
}

// As an object in JSON, a line each for people.
Record settings_of(const headroom::Run& run) {
  Record r{"settings", "Settings", {}};
  const auto settings = RowObject::parse(run.settings, nullptr, false);
  if (!settings.is_object()) return r.add("text", run.settings);
  for (const auto& [name, value] : settings.items()) {
    if (!value.is_array()) {
      r.add(name, value_of(value));
      continue;
    }
    std::vector<std::string> words;  // as it was typed: 16,32
    for (const auto& item : value) words.push_back(item.is_string() ? item.get<std::string>() : item.dump());
    r.add(name, joined(words, ","));
  }
  return r;
}

Record one_run(const headroom::Run& run, const std::vector<RowObject>& rows) {
  Record r{"", fmt::format("Run {}: {} on {}", run.id, run.command, run.machine), {}};
  r.add("id", run.id).add("command", run.command).add("machine", run.machine).add("version", run.version);
  r.add("started", run.started).add("finished", run.finished.empty() ? Value(std::string("cut short")) : Value(run.finished));
  r.add(Part{settings_of(run)});
  return r.add(Part{table_of(rows)});
}

Record all_runs(const Results& results) {
  Record r{"", results.file(), {}};
  Table t{"runs",
          "",
          {{"run"},
           {"command"},
           {"machine"},
           {"rows"},
           {"started"},
           {"finished"},
           {"version", Unit::none, Show::detail},
           {"settings", Unit::none, Show::detail}},
          {}};
  for (const headroom::Run& run : results.runs())
    t.add({run.id, run.command, run.machine, run.rows, run.started,
           run.finished.empty() ? Value(std::string("cut short")) : Value(run.finished), run.version, run.settings});
  return r.add(Part{std::move(t)});
}

}  // namespace

cli::Run results(CLI::App& app, Common& common) {
  auto word = std::make_shared<std::string>();
  app.add_option("RUN", *word, "A run's number: show its rows");
  app.footer("Examples:\n  headroom results\n  headroom results 3 --format csv --out run3.csv");
  return [word, &common] {
    const Results store(common.db.empty() ? default_results_file() : common.db, Results::Access::read);
    if (word->empty()) return deliver(all_runs(store), common);
    const auto id = parse_integer(*word, "RUN");
    const auto run = store.run(id);
    check(run.has_value(), Code::bad_argument, "there is no run {} in {}; headroom results lists the runs", id, store.file());
    return deliver(one_run(*run, row_objects(store, id)), common);
  };
}

}  // namespace headroom::cli
