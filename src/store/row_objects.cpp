#include "store/row_objects.h"

#include "base/error.h"
#include "base/json.h"

namespace headroom {

bool is_row(const RowObject& j) { return j.is_object() && (!j.contains("status") || j["status"].is_string()); }

std::string text_at(const RowObject& row, const char* field) {
  return row.contains(field) && row[field].is_string() ? row[field].get<std::string>() : "";
}
double number_at(const RowObject& row, const char* field) {
  return row.contains(field) && row[field].is_number() ? row[field].get<double>() : 0;
}

std::vector<KeyedRow> keyed_rows(const Results& results, std::int64_t run) {
  std::vector<KeyedRow> rows;
  for (StoredRow& stored : results.rows(run)) {
    RowObject row = parse_json_or_discard<RowObject>(stored.row);
    rows.push_back({std::move(stored), std::move(row)});
    check(is_row(rows.back().row), Code::io, "results: row {} of '{}' is damaged (in run {}); measure that run again", rows.size(),
          results.file(), run);
  }
  return rows;
}

std::vector<RowObject> row_objects(const Results& results, std::int64_t run) {
  std::vector<RowObject> rows;
  for (KeyedRow& kept : keyed_rows(results, run)) rows.push_back(std::move(kept.row));
  return rows;
}

}  // namespace headroom
