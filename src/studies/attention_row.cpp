#include "studies/attention_row.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace headroom::studies {

namespace {

template <class T>
Value cell_of(const T& x) {
  return x;
}
template <class T>
Value cell_of(const std::optional<T>& x) {
  return x ? Value(*x) : Value();
}

template <class T>
void read(const nlohmann::json& j, T& into) {
  into = j.get<T>();
}
template <class T>
void read(const nlohmann::json& j, std::optional<T>& into) {
  if (j.is_null())
    into = std::nullopt;
  else
    into = j.get<T>();
}

}  // namespace

Table table_of(const std::vector<AttentionRow>& rows) {
  Table t{"rows", "", {}, {}};
  const AttentionRow blank;
  for_each_field(blank, [&](const char* name, const auto&, Unit unit, Show show) { t.columns.push_back({name, unit, show}); });
  for (const AttentionRow& r : rows) {
    std::vector<Value> cells;
    for_each_field(r, [&](const char*, const auto& x, Unit, Show) { cells.push_back(cell_of(x)); });
    t.add(std::move(cells));
  }
  return t;
}

nlohmann::ordered_json json_of(const AttentionRow& r) {
  nlohmann::ordered_json j;
  for_each_field(r, [&](const char* name, const auto& x, Unit, Show) {
    if constexpr (requires { x.has_value(); })
      j[name] = x ? nlohmann::ordered_json(*x) : nlohmann::ordered_json();
    else
      j[name] = x;
  });
  return j;
}

nlohmann::ordered_json samples_json(const AttentionRow& r) {
  const auto stats = [](const bench::Stats& s) {
    return nlohmann::ordered_json{{"count", s.count},      {"mean_ms", s.mean}, {"std_ms", s.std},
                                  {"median_ms", s.median}, {"min_ms", s.min},   {"drift", s.drift}};
  };
  return {{"forward", stats(r.fwd)}, {"backward", stats(r.bwd)}};
}

AttentionRow attention_row_of(const std::string& text) {
  try {
    const auto j = nlohmann::json::parse(text);
    AttentionRow r;
    for_each_field(r, [&](const char* name, auto& x, Unit, Show) { read(j.at(name), x); });
    return r;
  } catch (const nlohmann::json::exception& e) {
    throw Error(Code::io, fmt::format("results: a stored row cannot be read ({})", e.what()));
  }
}

}  // namespace headroom::studies
