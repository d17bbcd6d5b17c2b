#include "report/page_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "report/chart_json.h"
#include "report/words.h"

namespace headroom {

namespace {

using Json = nlohmann::ordered_json;

Json six_digits(double x) {
  if (!std::isfinite(x)) return nullptr;
  return std::strtod(fmt::format("{:.6g}", x).c_str(), nullptr);
}

Json json_of(const Value& v, Unit unit) {
  if (const auto* d = std::get_if<double>(&v)) return unit == Unit::exact && std::isfinite(*d) ? Json(*d) : six_digits(*d);
  if (const auto* i = std::get_if<std::int64_t>(&v)) return *i;
  if (const auto* b = std::get_if<bool>(&v)) return *b;
  if (const auto* s = std::get_if<std::string>(&v)) return *s;
  return nullptr;
}

constexpr const char* show_names[] = {"always", "detail", "bar", "always"};

Json json_of(const Table& t, std::size_t most) {
  const std::size_t rows = std::min(t.rows.size(), most);
  Json columns = Json::array();
  for (std::size_t c = 0; c < t.columns.size(); ++c) {
    const Column& column = t.columns[c];
    Json values = Json::array();
    for (std::size_t r = 0; r < rows; ++r) values.push_back(json_of(t.rows[r][c], column.unit));
    const Show show = says_nothing(t, c) ? Show::detail : column.show;
    Json j{{"name", column.name}, {"unit", name_of(column.unit)}, {"show", show_names[std::size_t(show)]}};
    if (rows > 1 && std::all_of(values.begin(), values.end(), [&](const Json& v) { return v == values[0]; }))
      j["same"] = values[0];
    else
      j["values"] = std::move(values);
    columns.push_back(std::move(j));
  }
  return {{"is", "table"},
          {"name", t.name},
          {"title", t.title},
          {"rows", rows},
          {"left_out", t.rows.size() - rows},
          {"columns", std::move(columns)}};
}

// Which points of a series stay when there are too many.
std::vector<std::size_t> kept_points(const Chart::Series& s, Chart::Kind kind, std::size_t most) {
  std::vector<std::size_t> all(s.points.size());
  std::iota(all.begin(), all.end(), 0);
  if (all.size() <= most) return all;
  if (kind == Chart::Kind::spans) {
    const auto length = [&](std::size_t i) { return s.points[i].second - s.points[i].first; };
    std::nth_element(all.begin(), all.begin() + std::ptrdiff_t(most), all.end(), [&](auto a, auto b) { return length(a) > length(b); });
    all.resize(most);
    std::sort(all.begin(), all.end());
    return all;
  }
  std::vector<std::size_t> even;
  for (std::size_t i = 0; i < most; ++i) even.push_back(i * (all.size() - 1) / (most - 1));
  return even;
}

Json json_of(const Chart& c, std::size_t most) {
  Chart thin = c;
  std::size_t left_out = 0;
  for (auto& s : thin.series) {
    const auto kept = kept_points(s, c.kind, std::max<std::size_t>(most, 2));
    left_out += s.points.size() - kept.size();
    std::vector<std::pair<double, double>> points;
    std::vector<std::string> names;
    for (const auto i : kept) {
      points.emplace_back(s.points[i]);
      if (!s.names.empty()) names.push_back(s.names[i]);
    }
    s.points = std::move(points);
    s.names = std::move(names);
  }
  Json j = headroom::json_of(thin);
  for (auto& s : j["series"])
    for (const char* axis : {"x", "y"})
      for (auto& v : s[axis]) v = six_digits(v.get<double>());
  j["is"] = "chart";
  j["left_out"] = left_out;
  return j;
}

Json json_of(const Record& r, const PageLimits& limits) {
  Json parts = Json::array();
  for (const Part& p : r.parts) {
    if (const auto* f = std::get_if<Field>(&p.is))
      parts.push_back({{"is", "field"}, {"name", f->name}, {"value", json_of(f->value, f->unit)}, {"unit", name_of(f->unit)}});
    if (const auto* t = std::get_if<Table>(&p.is)) parts.push_back(json_of(*t, limits.rows));
    if (const auto* n = std::get_if<Note>(&p.is)) parts.push_back({{"is", "note"}, {"text", n->text}});
    if (const auto* c = std::get_if<Chart>(&p.is)) parts.push_back(json_of(*c, limits.points));
    if (const auto* inner = std::get_if<Record>(&p.is)) parts.push_back(json_of(*inner, limits));
  }
  return {{"is", "record"}, {"name", r.name}, {"title", r.title}, {"parts", std::move(parts)}};
}

}  // namespace

Json page_data(const Record& r, const PageLimits& limits) { return json_of(r, limits); }

}  // namespace headroom
