#include "studies/report/run.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "report/render.h"
#include "studies/results/columns.h"

namespace headroom::studies {

namespace {

std::vector<RowObject>& table_named(ReportRun& run, const std::string& name) {
  const auto at = std::find_if(run.tables.begin(), run.tables.end(), [&](const RowTable& t) { return t.name == name; });
  if (at != run.tables.end()) return at->rows;
  return run.tables.emplace_back(RowTable{name, {}}).rows;
}

bool is_table(const RowObject& j) {
  return j.is_array() && !j.empty() && std::all_of(j.begin(), j.end(), [](const auto& row) { return row.is_object(); });
}

// A table within a row, as the components of an account, is a table of its own; its lines say of which row they are.
void lift_tables(ReportRun& run, RowObject& row, std::size_t number) {
  std::vector<std::string> lifted;
  for (const auto& [field, value] : row.items())
    if (is_table(value)) lifted.push_back(field);
  for (const std::string& field : lifted) {
    for (const RowObject& line : row[field]) {
      RowObject with_row{{"row", number}};
      with_row.update(line);
      table_named(run, field).push_back(std::move(with_row));
    }
    row.erase(field);
  }
}

void add_row(ReportRun& run, RowObject row, const RowObject& detail) {
  const std::string table = row.contains("table") && row["table"].is_string() ? row["table"].get<std::string>() : "rows";
  row.erase("table");
  const std::size_t number = table_named(run, table).size() + 1;  // it stands before those that lie in its rows
  lift_tables(run, row, number);
  auto& into = table_named(run, table);
  if (!detail.is_object() || !detail.contains("rows") || !detail["rows"].is_array()) return into.push_back(std::move(row));
  for (const auto& line : detail["rows"])
    if (line.is_object()) into.push_back(line);
}

// One line of CSV, from `at` on; quoted cells may hold line breaks.
std::vector<std::string> csv_line(const std::string& text, std::size_t& at) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted && c == '"' && at + 1 < text.size() && text[at + 1] == '"') {
      cells.back() += c;
      ++at;
    } else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c == '\n' && !quoted) {
      ++at;
      break;
    } else if (c != '\r' || quoted)
      cells.back() += c;
  }
  return cells;
}

RowObject csv_value(const std::string& cell) {
  if (cell.empty()) return nullptr;
  if (cell.front() == '\'' && begins_formula(std::string_view(cell).substr(1))) return cell.substr(1);  // as render_csv() writes them
  if (cell == "true" || cell == "false") return cell == "true";
  const char* end = cell.data() + cell.size();
  std::int64_t i = 0;
  if (const auto r = std::from_chars(cell.data(), end, i); r.ec == std::errc() && r.ptr == end) return i;
  double d = 0;
  if (const auto r = std::from_chars(cell.data(), end, d); r.ec == std::errc() && r.ptr == end && std::isfinite(d)) return d;
  return cell;
}

void read_csv(const std::string& text, ReportRun& run) {
  std::vector<std::string> header;
  for (std::size_t at = 0; at < text.size();) {
    const bool remark = text[at] == '#';
    const std::size_t start = at;
    if (remark) {
      at = std::min(text.find('\n', at), text.size() - 1) + 1;
      std::string note = text.substr(start + 1, at - start - 1);
      while (!note.empty() && (note.back() == '\n' || note.back() == '\r')) note.pop_back();
      run.notes.push_back(note.starts_with(" ") ? note.substr(1) : note);
      continue;
    }
    const auto cells = csv_line(text, at);
    if (cells.size() == 1 && cells[0].empty()) continue;
    if (header.empty()) {
      header = cells;
      const auto mark = header.size() == 1 ? header[0].find_first_of(";\t") : std::string::npos;
      check(mark == std::string::npos, Code::bad_argument, "'{}' has {} between its columns; write it with commas, and numbers as 1.5",
            run.name, header[0][mark] == ';' ? "semicolons" : "tabs");
      for (std::size_t c = 0; c < header.size(); ++c)
        check(std::find(header.begin(), header.begin() + std::ptrdiff_t(c), header[c]) == header.begin() + std::ptrdiff_t(c),
              Code::bad_argument, "'{}' has two columns '{}': one of them would be lost", run.name, header[c]);
      continue;
    }
    check(cells.size() == header.size(), Code::bad_argument,
          "'{}' has a line of {} under a head of {}; give a file that --format csv wrote", run.name, counted(cells.size(), "cell"),
          header.size());
    RowObject row = RowObject::object();
    for (std::size_t c = 0; c < cells.size(); ++c) row[header[c]] = csv_value(cells[c]);
    add_row(run, std::move(row), nullptr);
  }
  check(!run.rows().empty(), Code::bad_argument, "'{}' has no rows; give a file that --format csv or json wrote, or a run's number",
        run.name);
}

void read_json(const std::string& text, ReportRun& run) {
  auto j = parse_json<RowObject>(text, fmt::format("'{}'", run.name));
  if (j.is_object() && j.contains("schema_version")) {
    const RowObject& version = j["schema_version"];
    check(version.is_number_integer() && version.get<std::int64_t>() <= json_schema_version, Code::bad_argument,
          "'{}' has schema version {}, this program knows {}; read it with the version that wrote it", run.name, version.dump(),
          json_schema_version);
    j.erase("schema_version");
  }
  const RowObject& rows = j.is_object() && j.contains("rows") ? j["rows"] : j;
  check(rows.is_array() || j.is_object(), Code::bad_argument,
        "'{}' has no rows; give a file that --format json or csv wrote, or a run's number", run.name);
  if (rows.is_array())
    for (std::size_t i = 0; i < rows.size(); ++i) {
      check(is_row(rows[i]), Code::bad_argument, "row {} of '{}' is damaged; give a file that --format json wrote, or a run's number",
            i + 1, run.name);
      add_row(run, rows[i], nullptr);
    }
  if (!j.is_object()) return;
  const auto word = [&](const char* key, std::string& into) {
    if (j.contains(key) && j[key].is_string()) into = j[key];
  };
  if (j.contains("made_by") && j["made_by"].is_object()) {  // where the file itself says nothing else
    const RowObject made = j["made_by"];
    for (const auto& [key, into] :
         {std::pair{"command", &run.command}, {"version", &run.version}, {"date", &run.started}, {"date", &run.finished}})
      if (made.contains(key) && made[key].is_string()) *into = made[key];
  }
  word("command", run.command);
  word("version", run.version);
  word("started", run.started);
  word("finished", run.finished);
  word("device", run.machine);
  word("machine", run.machine);
  if (j.contains("device") && j["device"].is_object()) {
    run.device = j["device"];
    if (run.device.contains("name") && run.device["name"].is_string()) run.machine = run.device["name"];
  }
  RowObject whole = RowObject::object();  // what a profile says of the step, beside its tables
  for (const auto& [key, value] : j.items())
    if (j.contains("kernels") && !value.is_structured() && key != "command") whole[key] = value;
  if (!whole.empty()) run.tables.push_back({"step", {std::move(whole)}});
  for (const auto& [key, value] : j.items()) {
    if (key != "rows" && is_table(value)) run.tables.push_back({key, {value.begin(), value.end()}});
    if (!value.is_structured() && key != "command") run.settings[key] = value;
  }
  if (j.contains("notes") && j["notes"].is_array())
    for (const auto& n : j["notes"])
      if (n.is_string()) run.notes.push_back(n);
  if (j.contains("analysis") && j["analysis"].is_object())
    for (const auto& [key, value] : j["analysis"].items())
      if (key != "rows" && is_table(value)) run.tables.push_back({key, {value.begin(), value.end()}});
  check(!run.tables.empty() || rows.is_array(), Code::bad_argument,
        "'{}' has no rows; give a file that --format json or csv wrote, or a run's number", run.name);
}

// The machine that every row names; nothing when they name several, or none.
std::string device_of_rows(const std::vector<RowObject>& rows) {
  const auto name = [](const RowObject& row) {
    return row.contains("device") && row["device"].is_string() ? row["device"].get<std::string>() : "";
  };
  const bool one = !rows.empty() && std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return name(row) == name(rows[0]); });
  return one ? name(rows[0]) : "";
}

// A file of a program that never heard of ours. In one that says who made it, any rows are a table.
void check_known(const ReportRun& run) {
  std::vector<std::string> fields;
  for (const RowTable& table : run.tables) {
    const Columns columns(table.name, table.rows);
    for (const RowObject& row : table.rows)
      if (columns.measures(row)) return;
    if (!table.rows.empty() && fields.empty())
      for (const auto& [field, value] : table.rows.front().items()) fields.push_back(field);
  }
  check(!fields.empty(), Code::bad_argument, "'{}' has no rows; give a file that --format csv or json wrote, or a run's number", run.name);
  throw Error(
      Code::bad_argument,
      fmt::format("'{}' has no column of something measured, only {}; a column of numbers is known by its end: _ms and _s are times, "
                  "_bytes bytes, _tflops speeds, _error errors",
                  run.name, shortened(joined(fields, ", "), 120)));
}

bool is_csv(const std::string& file_name) { return format_of_file(file_name) == Format::csv; }

}  // namespace

const std::vector<RowObject>& ReportRun::rows(const std::string& table) const {
  static const std::vector<RowObject> none;
  const auto at = std::find_if(tables.begin(), tables.end(), [&](const RowTable& t) { return t.name == table; });
  return at == tables.end() ? none : at->rows;
}

ReportRun run_from_store(const Results& results, const StoredRun& run) {
  ReportRun r{fmt::format("run {}", run.id), run.command, run.machine, run.version, run.started, run.finished};
  r.settings = parse_json_or_discard<RowObject>(run.settings);
  if (!r.settings.is_object()) r.settings = RowObject::object();
  for (const KeyedRow& kept : keyed_rows(results, run.id)) add_row(r, kept.row, parse_json_or_discard<RowObject>(kept.stored.detail));
  return r;
}

ReportRun run_from_text(const std::string& text, const std::string& file_name) {
  ReportRun run{file_name, "", "", "", "", ""};
  constexpr std::string_view mark = "\xef\xbb\xbf";  // UTF-8's mark, which spreadsheets write first
  if (text.starts_with(mark)) return run_from_text(text.substr(mark.size()), file_name);
  const auto first = text.find_first_not_of(" \t\r\n");
  const bool csv = is_csv(file_name);
  check(csv || (first != text.npos && (text[first] == '{' || text[first] == '[')), Code::bad_argument,
        "'{}' is not JSON, and CSV has a name that ends in .csv; give a file that --format json or csv wrote, or a run's number",
        file_name);
  csv ? read_csv(text, run) : read_json(text, run);
  if (run.machine.empty()) run.machine = device_of_rows(run.rows());
  return run;
}

std::vector<ReportRun> runs_from_text(const std::string& text, const std::string& file_name) {
  const RowObject j = is_csv(file_name) ? RowObject() : parse_json_or_discard<RowObject>(text);
  const auto is_result = [](const RowObject& r) { return r.is_object() && r.contains("result") && r["result"].is_object(); };
  const bool several =
      j.is_object() && j.contains("runs") && is_table(j["runs"]) && std::all_of(j["runs"].begin(), j["runs"].end(), is_result);
  if (!several) {
    ReportRun run = run_from_text(text, file_name);
    if (!(j.is_object() && j.contains("made_by"))) check_known(run);
    return {std::move(run)};
  }
  std::vector<ReportRun> runs;
  for (const RowObject& one : j["runs"]) {
    const std::string result = text_of_json(one["result"]);
    ReportRun& run = runs.emplace_back(run_from_text(result, fmt::format("{} ({})", file_name, runs.size() + 1)));
    if (one.contains("command") && one["command"].is_string()) run.command = one["command"];
    if (run.machine.empty() && j.contains("machine") && j["machine"].is_string()) run.machine = j["machine"];
  }
  return runs;
}

std::vector<ReportRun> runs_from_file(const std::string& file) {
  return runs_from_text(read_file(file, "RUN", most_json_bytes), std::filesystem::path(file).filename().string());
}

}  // namespace headroom::studies
