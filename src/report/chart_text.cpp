#include "report/chart_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/text.h"
#include "report/words.h"

namespace headroom {

namespace {

constexpr int bar_columns = 32;
constexpr std::size_t course_columns = 48;

using Points = std::vector<std::pair<double, double>>;

int widest(const std::vector<std::string>& names) {
  int width = 0;
  for (const auto& n : names) width = std::max(width, columns_of(n));
  return width;
}
std::string padded(const std::string& s, int width) { return s + std::string(std::size_t(std::max(0, width - columns_of(s))), ' '); }

Points thinned(const Points& all) {  // the highest of each stretch
  if (all.size() <= course_columns) return all;
  Points out;
  for (std::size_t s = 0; s < course_columns; ++s) {
    const auto begin = all.begin() + std::ptrdiff_t(s * all.size() / course_columns),
               end = all.begin() + std::ptrdiff_t((s + 1) * all.size() / course_columns);
    out.push_back(*std::max_element(begin, end, [](const auto& a, const auto& b) { return a.second < b.second; }));
  }
  return out;
}

double most_of(const Points& points) {
  return std::ranges::max_element(points, {}, [](const auto& p) { return p.second; })->second;
}

std::vector<std::string> courses(const Chart& c) {
  std::vector<std::string> names, lines;
  for (const auto& s : c.series) names.push_back(s.name);
  const int width = widest(names);
  for (const auto& s : c.series)
    if (!s.points.empty() && s.joined && s.continues.empty())
      lines.push_back(fmt::format("{}  {}  first {}, last {}, most {}  ({} {} to {})", padded(s.name, width),
                                  sparkline(thinned(s.points), c.log), in_words(s.points.front().second, c.unit),
                                  in_words(s.points.back().second, c.unit), in_words(most_of(s.points), c.unit), c.x_name,
                                  number_in_words(s.points.front().first), number_in_words(s.points.back().first)));
  return lines;
}

// The course of the sum, and of each series the most it comes to.
std::vector<std::string> stacked(const Chart& c) {
  Points sum;
  std::vector<std::string> names{"all"};
  for (const auto& s : c.series) {
    names.push_back(s.name);
    for (std::size_t i = 0; i < s.points.size(); ++i)
      i < sum.size() ? void(sum[i].second += s.points[i].second) : sum.push_back(s.points[i]);
  }
  if (sum.empty()) return {};
  const auto most = [](const Points& points) {
    double top = 0;
    for (const auto& [x, y] : points) top = std::max(top, y);
    return top;
  };
  const int width = widest(names);
  const double top = std::max(most(sum), 1e-300);
  std::vector<std::string> lines{
      fmt::format("{}  {}  at most {}", padded("all", width), sparkline(thinned(sum), c.log), in_words(most(sum), c.unit))};
  for (const auto& s : c.series)
    lines.push_back(fmt::format("{}  {}  at most {}", padded(s.name, width), padded(bar(most(s.points) / top, bar_columns), bar_columns),
                                in_words(most(s.points), c.unit)));
  return lines;
}

struct Bar {
  std::string name;
  double value = 0, spread = 0;
};

std::vector<std::string> bars(const std::vector<Bar>& all, Unit unit) {
  std::vector<std::string> names, lines;
  double top = 1e-300;
  for (const Bar& one : all) {
    names.push_back(one.name);
    top = std::max(top, one.value);
  }
  for (const Bar& one : all)
    lines.push_back(padded(one.name, widest(names)) + "  " + padded(bar(one.value / top, bar_columns), bar_columns) + "  " +
                    in_words(one.value, unit) + (one.spread > 0 ? " ± " + in_words(one.spread, unit) : ""));
  return lines;
}

// A bar for each tick, of its series' own characters; what they stand for comes last.
std::vector<std::string> stacked_bars(const Chart& c, int columns) {
  constexpr std::array<std::string_view, 6> fills = {"█", "▓", "▒", "░", "─", "·"};
  // Where both have no room a bar gives way first: names have to be told apart.
  constexpr int beside = 2 + 2 + 2 + 8, narrowest_name = 20, telling_name = 34, shortest_bar = 12;
  const int longest_bar = std::clamp(columns - beside - telling_name, shortest_bar, bar_columns),
            widest_name = std::max(narrowest_name, columns - beside - longest_bar);
  std::vector<std::vector<double>> values(c.ticks.size(), std::vector<double>(c.series.size()));
  double top = 1e-300;
  for (std::size_t s = 0; s < c.series.size(); ++s)
    for (const auto& [x, y] : c.series[s].points)
      if (std::size_t(x) < values.size()) values[std::size_t(x)][s] += y;
  const auto sum_of = [](const std::vector<double>& all) { return std::accumulate(all.begin(), all.end(), 0.0); };
  for (const auto& of_tick : values) top = std::max(top, sum_of(of_tick));
  std::vector<std::string> names, lines;
  for (const std::string& tick : c.ticks) names.push_back(shortened(tick, widest_name));
  for (std::size_t t = 0; t < c.ticks.size(); ++t) {
    std::string line;
    double until = 0;
    for (std::size_t s = 0; s < c.series.size(); ++s) {
      const auto from = std::lround(until / top * longest_bar), to = std::lround((until + values[t][s]) / top * longest_bar);
      line += repeated(fills[s % fills.size()], int(to - from));
      until += values[t][s];
    }
    lines.push_back(padded(names[t], widest(names)) + "  " + padded(line, longest_bar) + "  " + in_words(sum_of(values[t]), c.unit));
  }
  std::vector<std::string> meaning;
  for (std::size_t s = 0; s < c.series.size(); ++s) meaning.push_back(fmt::format("{} {}", fills[s % fills.size()], c.series[s].name));
  lines.push_back(joined(meaning, "  "));
  return lines;
}

std::vector<Bar> values_of(const Chart& c) {
  std::vector<Bar> out;
  if (c.kind == Chart::Kind::spans) {
    for (const auto& s : c.series) {
      double sum = 0;
      for (const auto& [start, end] : s.points) sum += end - start;
      out.push_back({s.name, sum});
    }
    return out;
  }
  for (std::size_t t = 0; t < c.ticks.size(); ++t)
    for (const auto& s : c.series)
      for (std::size_t i = 0; i < s.points.size(); ++i)
        if (const auto [x, y] = s.points[i]; std::size_t(x) == t && (y != 0 || c.series.size() == 1))
          out.push_back({c.series.size() > 1 ? c.ticks[t] + ": " + s.name : c.ticks[t], y, s.spread.empty() ? 0 : s.spread[i]});
  return out;
}

}  // namespace

std::vector<std::string> chart_lines(const Chart& c, int columns) {
  switch (c.kind) {
    case Chart::Kind::lines: return courses(c);
    case Chart::Kind::areas: return stacked(c);
    case Chart::Kind::bars: return c.series.size() > 1 && c.ticks.size() > 1 ? stacked_bars(c, columns) : bars(values_of(c), c.unit);
    case Chart::Kind::spans: return bars(values_of(c), c.x_unit);
  }
  return {};
}

}  // namespace headroom
