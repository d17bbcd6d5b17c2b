// Described rows as a table, a described struct as fields of a record.
#pragma once
#include "base/text.h"
#include "report/record.h"

namespace headroom {

template <class T>
Value value_of_member(const T& x) {
  if constexpr (std::is_same_v<T, Value>) {  // a number, or a word where there is none
    return x;
  } else if constexpr (is_optional<T>) {
    return x ? value_of_member(*x) : Value();
  } else if constexpr (is_list<T>) {
    std::vector<std::string> words;
    for (const auto& item : x) {
      if constexpr (OneWord<std::remove_cvref_t<decltype(item)>>)
        words.push_back(WordsOf<std::remove_cvref_t<decltype(item)>>::to(item));
      else
        words.push_back(fmt::format("{}", item));
    }
    return joined(words, ",");  // as it was typed
  } else if constexpr (OneWord<T>) {
    return WordsOf<T>::to(x);
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double> || std::is_same_v<T, std::string>) {
    return x;
  } else {
    return std::int64_t(x);
  }
}

template <Described Row>
std::vector<Column> columns_of() {
  std::vector<Column> columns;
  const Row blank{};
  describe(blank, [&](const auto&, const Description& d) { columns.push_back({d.name, d.unit, d.show, d.role}); });
  return columns;
}

template <Described Row>
std::vector<Value> cells_of(const Row& row) {
  std::vector<Value> cells;
  describe(row, [&](const auto& member, const Description&) { cells.push_back(value_of_member(member)); });
  return cells;
}

template <Described Row>
Table table_of(std::string name, std::string title, const std::vector<Row>& rows) {
  Table t{std::move(name), std::move(title), columns_of<Row>(), {}};
  for (const Row& row : rows) t.add(cells_of(row));
  return t;
}

// Where a whole column has nothing to say, as what a card answered where there is none.
inline void leave_out(Table& t, std::string_view column) {
  for (std::size_t c = 0; c < t.columns.size(); ++c) {
    if (t.columns[c].name != column) continue;
    t.columns.erase(t.columns.begin() + std::ptrdiff_t(c));
    for (auto& row : t.rows) row.erase(row.begin() + std::ptrdiff_t(c));
    return;
  }
}

// What is not known is left out.
template <Described T>
Record& add_fields(Record& into, const T& x) {
  describe(x, [&](const auto& member, const Description& d) {
    if (Value v = value_of_member(member); !std::holds_alternative<std::monostate>(v)) into.add(d.name, std::move(v), d.unit);
  });
  return into;
}

}  // namespace headroom
