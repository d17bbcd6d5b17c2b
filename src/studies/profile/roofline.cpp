// The roofline as characters: FLOPs per byte to the right, TFLOP/s upward, both by powers. The roof is a line, the ops are letters.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "studies/profile/tables.h"

namespace headroom::studies {

namespace {

struct OpPoint {
  char letter;
  std::string op;
  double intensity, flops;
};

std::vector<OpPoint> points_of(const Table& t, std::size_t most) {
  const auto at = [&](const char* name) {
    return std::size_t(std::find_if(t.columns.begin(), t.columns.end(), [&](const Column& c) { return c.name == name; }) -
                       t.columns.begin());
  };
  std::vector<OpPoint> points;
  for (const auto& row : t.rows) {
    const auto *intensity = std::get_if<double>(&row[at("intensity")]), *tflops = std::get_if<double>(&row[at("tflops")]);
    if (!intensity || !tflops || *intensity <= 0 || *tflops <= 0 || points.size() == most) continue;
    points.push_back({char('a' + int(points.size())), std::get<std::string>(row[at("op")]), *intensity, *tflops * 1e12});
  }
  return points;
}

}  // namespace

std::string ProfileTables::roofline_chart() const {
  const double peak = ceilings.of(precision), copy = ceilings.copy_bytes_per_s;
  const auto points = points_of(roofline(), 16);
  if (peak <= 0 || copy <= 0 || points.empty()) return "";
  constexpr int width = 64, height = 14;
  double left = peak / copy / 8, right = peak / copy * 8, bottom = peak / 16, top = peak * 1.5;
  for (const OpPoint& p : points) {
    left = std::min(left, p.intensity);
    right = std::max(right, p.intensity);
    bottom = std::min(bottom, p.flops);
    top = std::max(top, p.flops);
  }
  const auto column = [&](double x) {
    return std::clamp(int(std::lround(std::log(x / left) / std::log(right / left) * (width - 1))), 0, width - 1);
  };
  const auto line = [&](double y) {
    return height - 1 - std::clamp(int(std::lround(std::log(y / bottom) / std::log(top / bottom) * (height - 1))), 0, height - 1);
  };
  std::vector<std::string> canvas(height, std::string(width, ' '));
  for (int c = 0; c < width; ++c) {
    const double x = left * std::pow(right / left, double(c) / (width - 1)), roof = std::min(peak, x * copy);
    if (roof >= bottom) canvas[std::size_t(line(roof))][std::size_t(c)] = x * copy < peak ? '/' : '_';
  }
  for (auto p = points.rbegin(); p != points.rend(); ++p)  // the ones that take the most time lie on top
    canvas[std::size_t(line(p->flops))][std::size_t(column(p->intensity))] = p->letter;
  std::string out = fmt::format("Roofline of {}: TFLOP/s over FLOPs per byte, both by powers\n", name_of(precision));
  for (int l = 0; l < height; ++l)
    out += fmt::format("  {:>9} |{}\n",
                       l == 0            ? fmt::format("{:.3g}", top / 1e12)
                       : l == height - 1 ? fmt::format("{:.2g}", bottom / 1e12)
                                         : "",
                       canvas[std::size_t(l)]);
  out += fmt::format("  {:>9} +{}\n  {:>9}  {:<{}}{:>10}\n", "", std::string(width, '-'), "", fmt::format("{:.3g}", left), width - 10,
                     fmt::format("{:.3g}", right));
  std::string line_of_legend = " ";  // folded as wide as the canvas
  for (const OpPoint& p : points) {
    const std::string one = fmt::format(" {} {}", p.letter, p.op);
    if (line_of_legend.size() > 1 && line_of_legend.size() + one.size() > std::size_t(width) + 12)
      out += std::exchange(line_of_legend, " ") + "\n";
    line_of_legend += (line_of_legend.size() > 1 ? " " : "") + one;
  }
  return out + line_of_legend;
}

}  // namespace headroom::studies
