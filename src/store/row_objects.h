// The rows of a run as JSON objects. The only reader of stored rows: one line names a damaged row and
// its place; nothing is changed.
#pragma once
#include <string>
#include <vector>

#include "store/described_json.h"
#include "store/results.h"

namespace headroom {

bool is_row(const RowObject&);                             // an object; if it has a status, the status is a word
std::string text_at(const RowObject&, const char* field);  // empty where there is no word
double number_at(const RowObject&, const char* field);     // 0 where there is no number

struct KeyedRow {
  StoredRow stored;
  RowObject row;
};
std::vector<KeyedRow> keyed_rows(const Results&, std::int64_t run);
std::vector<RowObject> row_objects(const Results&, std::int64_t run);

}  // namespace headroom
