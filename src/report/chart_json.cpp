#include "report/chart_json.h"

#include <algorithm>
#include <array>
#include <map>

namespace headroom {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kind_names = {"lines", "areas", "bars", "spans"};

template <class Enum, std::size_t n>
Enum named(const std::array<std::string_view, n>& names, const std::string& name) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) throw std::out_of_range(name);
  return Enum(at - names.begin());
}

std::vector<std::pair<double, double>> points_of(const Json& j) {
  std::vector<std::pair<double, double>> points;
  const auto &x = j.at("x"), &y = j.at("y");
  for (std::size_t i = 0; i < x.size(); ++i) points.emplace_back(x[i].get<double>(), y.at(i).get<double>());
  return points;
}

void read(const Json& j, Chart& c) {
  c.title = j.at("title");
  c.x_name = j.at("x_name");
  c.y_name = j.at("y_name");
  c.choice = j.at("choice");
  c.log = j.at("log");
  c.log_x = j.value("log_x", false);
  c.unit = value_named<Unit>(j.at("unit").get<std::string>(), "unit");
  c.x_unit = value_named<Unit>(j.at("x_unit").get<std::string>(), "x_unit");
  c.kind = named<Chart::Kind>(kind_names, j.at("kind"));
  c.ticks = j.at("ticks").get<std::vector<std::string>>();
  for (const auto& m : j.at("marks")) c.marks.push_back({m.at("name"), m.at("at"), m.at("upright")});
  const auto words = j.at("words").get<std::vector<std::string>>();
  for (const auto& s : j.at("series")) {
    Chart::Series series{s.at("name"), points_of(s), {}, s.at("joined"), s.at("continues")};
    if (s.contains("spread")) series.spread = s["spread"].get<std::vector<double>>();
    for (const auto& n : s.at("names")) series.names.push_back(words.at(n.get<std::size_t>()));
    c.series.push_back(std::move(series));
  }
}

}  // namespace

std::string_view name_of(Unit u) { return names_of<Unit>.of(u); }
std::string_view name_of(Chart::Kind k) { return kind_names[std::size_t(k)]; }

Json json_of(const Chart& c) {
  Json marks = Json::array(), all = Json::array();
  for (const auto& m : c.marks) marks.push_back({{"name", m.name}, {"at", m.at}, {"upright", m.upright}});
  std::map<std::string, std::size_t> place;
  std::vector<std::string> words;
  for (const auto& s : c.series) {
    Json x = Json::array(), y = Json::array(), names = Json::array();
    for (const auto& [px, py] : s.points) {
      x.push_back(px);
      y.push_back(py);
    }
    for (const auto& n : s.names) {
      const auto [at, fresh] = place.try_emplace(n, words.size());
      if (fresh) words.push_back(n);
      names.push_back(at->second);
    }
    all.push_back({{"name", s.name}, {"joined", s.joined}, {"continues", s.continues}, {"x", x}, {"y", y}, {"names", names}});
    if (!s.spread.empty()) all.back()["spread"] = s.spread;
  }
  return {{"title", c.title},   {"kind", name_of(c.kind)}, {"choice", c.choice}, {"x_name", c.x_name}, {"x_unit", name_of(c.x_unit)},
          {"y_name", c.y_name}, {"unit", name_of(c.unit)}, {"log", c.log},       {"log_x", c.log_x},   {"ticks", c.ticks},
          {"marks", marks},     {"words", words},          {"series", all}};
}

std::optional<Chart> chart_of(const Json& j) try {
  Chart c;
  read(j, c);
  return c;
} catch (const std::exception&) {  // a key that is missing, or not of its kind
  return {};
}

}  // namespace headroom
