#include "studies/results/rows_table.h"

#include <algorithm>
#include <map>

#include "base/json.h"
#include "studies/results/columns.h"

namespace headroom::studies {

Value value_of(const RowObject& j) {
  if (j.is_boolean()) return j.get<bool>();
  if (j.is_number_integer()) return j.get<std::int64_t>();
  if (j.is_number()) return j.get<double>();
  if (j.is_string()) return j.get<std::string>();
  return j.is_null() ? Value() : Value(text_of_json(j));
}

Table rows_table(std::string name, std::string title, std::span<const RowObject> rows) {
  Table t{std::move(name), std::move(title), {}, {}};
  std::map<std::string, std::size_t> place;
  const Columns columns(t.name, rows);
  for (const auto& row : rows)
    for (const auto& [field, value] : row.items())
      if (place.try_emplace(field, t.columns.size()).second) t.columns.push_back(columns.of(field));
  for (const auto& row : rows) {
    std::vector<Value> cells(t.columns.size());
    for (const auto& [field, value] : row.items()) cells[place.at(field)] = value_of(value);
    t.add(std::move(cells));
  }
  return t;
}

}  // namespace headroom::studies
