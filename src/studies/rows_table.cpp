#include "studies/rows_table.h"

#include <algorithm>
#include <map>

namespace headroom::studies {

Value value_of(const RowObject& j) {
  if (j.is_boolean()) return j.get<bool>();
  if (j.is_number_integer()) return j.get<std::int64_t>();
  if (j.is_number()) return j.get<double>();
  if (j.is_string()) return j.get<std::string>();
  return j.is_null() ? Value() : Value(j.dump(-1, ' ', false, RowObject::error_handler_t::replace));
}

Unit unit_of(const std::string& field) {
  const auto is = [&](std::string_view word) {
    return field == word || (field.ends_with(word) && field[field.size() - word.size() - 1] == '_');
  };
  if (is("bytes_per_s")) return Unit::bytes_per_s;
  if (is("flops_per_s")) return Unit::flops;
  if (is("bytes")) return Unit::bytes;
  if (is("ms") || field.ends_with("_ms_std")) return Unit::ms;
  if (is("tflops")) return Unit::tflops;
  if (is("share") || field.find("_share_") != std::string::npos || field == "mfu" || field == "covered" || is("counted"))
    return Unit::share;
  if (is("error") || field.starts_with("max_error")) return Unit::error;
  if (is("ratio") || is("faster") || is("fewer") || field == "counted_over_formula") return Unit::ratio;
  return Unit::none;
}

RowObject row_object(const Table& t, std::size_t row) {
  RowObject j = RowObject::object();
  for (std::size_t c = 0; c < t.columns.size(); ++c)
    std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, std::monostate>)
            j[t.columns[c].name] = nullptr;
          else
            j[t.columns[c].name] = v;
        },
        t.rows[row][c]);
  return j;
}

Table rows_table(std::string name, std::string title, std::span<const RowObject> rows) {
  Table t{std::move(name), std::move(title), {}, {}};
  std::map<std::string, std::size_t> place;
  for (const auto& row : rows)
    for (const auto& [field, value] : row.items())
      if (place.try_emplace(field, t.columns.size()).second) {
        const bool narrow = field.ends_with("_std") || field.starts_with("max_error_d") || field == "device" || field == "why";
        t.columns.push_back({field, unit_of(field), narrow ? Show::detail : Show::always});
      }
  for (const auto& row : rows) {
    std::vector<Value> cells(t.columns.size());
    for (const auto& [field, value] : row.items()) cells[place.at(field)] = value_of(value);
    t.add(std::move(cells));
  }
  return t;
}

}  // namespace headroom::studies
