// The rows of a run as the JSON objects that they must be. The one reader of stored rows: a row that is damaged is named in one
// line, with its place, and nothing is changed.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "store/results.h"

namespace headroom {

using RowObject = nlohmann::ordered_json;  // fields in the order in which the command gave them

bool is_row(const RowObject&);                             // an object; if it has a status, the status is a word
std::string text_at(const RowObject&, const char* field);  // empty where there is no word
double number_at(const RowObject&, const char* field);     // 0 where there is no number
std::vector<RowObject> row_objects(const Results&, std::int64_t run);

}  // namespace headroom
