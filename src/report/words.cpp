#include "report/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/printable.h"
#include "base/text.h"

namespace headroom {

bool numeric(const Value& v) { return std::holds_alternative<std::int64_t>(v) || std::holds_alternative<double>(v); }

double number_of(const Value& v) {
  if (const auto* i = std::get_if<std::int64_t>(&v)) return double(*i);
  if (const auto* d = std::get_if<double>(&v)) return *d;
  return std::numeric_limits<double>::quiet_NaN();
}

std::string in_words(const Value& v, Unit unit) {
  if (std::holds_alternative<std::monostate>(v)) return "–";
  if (const auto* s = std::get_if<std::string>(&v)) return printable(*s, Lines::many);
  if (const auto* b = std::get_if<bool>(&v)) return *b ? "yes" : "no";
  const double x = number_of(v);
  switch (unit) {
    case Unit::bytes: return bytes_in_words(x);
    case Unit::ms: return number_in_words(x);
    case Unit::tflops: return fmt::format("{:.3g}", x);
    case Unit::bytes_per_s:
      return x >= 1e12  ? fmt::format("{:.2f} TB/s", x / 1e12)
             : x >= 1e9 ? fmt::format("{:.1f} GB/s", x / 1e9)
                        : fmt::format("{:.3g} MB/s", x / 1e6);
    case Unit::flops: return x >= 1e12 ? fmt::format("{:.4g} TFLOP/s", x / 1e12) : fmt::format("{:.4g} GFLOP/s", x / 1e9);
    case Unit::ratio: return fmt::format("{:.2f}×", x);
    case Unit::share: return fmt::format("{:.1f} %", 100 * x);
    case Unit::error: return fmt::format("{:.1e}", x);
    case Unit::exact: return fmt::format("{}", x);
    case Unit::per_s:
    case Unit::none: break;
  }
  if (const auto* i = std::get_if<std::int64_t>(&v)) return std::to_string(*i);
  return number_in_words(x);
}

std::string bar(double share, int columns) {  // eighths of a character
  constexpr std::array<std::string_view, 8> eighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int steps = int(std::lround(std::clamp(share, 0.0, 1.0) * columns * 8));
  return repeated("█", steps / 8) + std::string(eighths[std::size_t(steps % 8)]);
}

bool says_nothing(const Table& t, std::size_t column) {
  return !t.rows.empty() && std::all_of(t.rows.begin(), t.rows.end(), [&](const auto& row) {
    const auto* words = std::get_if<std::string>(&row[column]);
    return words && words->empty();
  });
}

namespace {
std::string with_spread(const Value& mean, const Value& spread, Unit unit) {
  std::string words = in_words(mean, unit);
  if (!numeric(mean) || !numeric(spread)) return words;
  const double s = number_of(spread);
  const std::string of = s > 0 && s < 1e-4 ? fmt::format("{:.0e}", s) : s < 99.5 ? fmt::format("{:.2g}", s) : fmt::format("{:.0f}", s);
  return fmt::format("{} ± {}", words, of);
}
}  // namespace

Worded worded(const Table& t, int bar_columns) {
  Worded w;
  w.rows.resize(t.rows.size());
  for (std::size_t c = 0; c < t.columns.size(); ++c) {
    const Column& column = t.columns[c];
    if (column.show == Show::detail || column.show == Show::spread || says_nothing(t, c)) continue;
    const bool spread = c + 1 < t.columns.size() && t.columns[c + 1].show == Show::spread;
    bool right = false;
    double top = 0;
    for (const auto& row : t.rows)
      if (numeric(row[c])) {
        right = true;
        top = std::max(top, number_of(row[c]));
      }
    w.header.push_back(printable(column.name));
    w.right.push_back(right);
    for (std::size_t r = 0; r < t.rows.size(); ++r)
      w.rows[r].push_back(
          printable(spread ? with_spread(t.rows[r][c], t.rows[r][c + 1], column.unit) : in_words(t.rows[r][c], column.unit)));
    if (column.show != Show::bar || bar_columns == 0 || top <= 0) continue;
    w.header.push_back("");
    w.right.push_back(false);
    for (std::size_t r = 0; r < t.rows.size(); ++r)
      w.rows[r].push_back(numeric(t.rows[r][c]) ? bar(number_of(t.rows[r][c]) / top, bar_columns) : "");
  }
  return w;
}

std::string nothing_to_show(const Table& t) { return fmt::format("({} without a value to show)", counted(t.rows.size(), "row")); }

std::string sparkline(const std::vector<std::pair<double, double>>& points, bool log) {
  constexpr std::array<std::string_view, 8> levels = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto height = [&](double y) { return log ? std::log(std::max(y, 1e-300)) : y; };
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto& [x, y] : points) {
    low = std::min(low, height(y));
    high = std::max(high, height(y));
  }
  std::string line;
  for (const auto& [x, y] : points) line += levels[high > low ? std::size_t(std::lround((height(y) - low) / (high - low) * 7)) : 0];
  return line;
}

}  // namespace headroom
