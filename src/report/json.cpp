// JSON: a record is an object in reading order, which begins with the version of its names and their meaning. Values that JSON has no word for (NaN, infinity) are null.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/printable.h"
#include "report/render.h"

namespace headroom {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Value& v) {
  return std::visit(
      [](const auto& x) -> Json {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, std::monostate>)
          return nullptr;
        else if constexpr (std::is_same_v<T, double>)
          return std::isfinite(x) ? Json(x) : Json(nullptr);
        else
          return x;
      },
      v);
}

Json json_of(const Table& t) {
  Json rows = Json::array();
  for (std::size_t r = 0; r < t.rows.size(); ++r) {
    Json object = Json::object();
    for (std::size_t c = 0; c < t.columns.size(); ++c) object[t.columns[c].name] = json_of(t.rows[r][c]);
    if (!t.within.empty())
      for (const Table& inner : t.within[r]) object[inner.name] = json_of(inner);
    rows.push_back(std::move(object));
  }
  return rows;
}

Json json_of(const Record& r) {
  Json object = Json::object();
  for (const Part& p : r.parts) {
    if (const auto* f = std::get_if<Field>(&p.is)) object[f->name] = json_of(f->value);
    if (const auto* t = std::get_if<Table>(&p.is)) object[t->name] = json_of(*t);
    if (const auto* n = std::get_if<Note>(&p.is); n && n->in_json) object["notes"].push_back(n->text);
    if (const auto* inner = std::get_if<Record>(&p.is)) object[inner->name] = json_of(*inner);
  }
  return object;
}

}  // namespace

std::string render_json(const Record& r) {
  Json j{{"schema_version", json_schema_version}};
  if (r.title.ends_with('.')) j["answer"] = r.title;  // a title that is a sentence is the answer
  j.update(json_of(r));
  return escaped_in_json(text_of_json(j, 2)) + "\n";
}

}  // namespace headroom
