#include "studies/account.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace headroom {

std::string shape_text(const Shape& s) {
  std::string out;
  for (int i = 0; i < s.rank; ++i) out += fmt::format("{}{}", i ? "×" : "", s[i]);
  return out;
}

std::string formula_of(const Shape& probe, const Shape& shape, std::size_t element_bytes, std::span<const Symbol> symbols) {
  std::string in_symbols, in_numbers;
  for (int i = 0; i < shape.rank; ++i) {
    std::string word = std::to_string(shape[i]);
    if (probe.rank == shape.rank)
      for (const Symbol& s : symbols)
        if (s.probe == probe[i]) word = s.name;
    if (shape[i] != 1 || word != "1") in_symbols += word + "·";
    in_numbers += fmt::format("{}·", shape[i]);
  }
  return fmt::format("{}{} = {}{}", in_symbols, element_bytes, in_numbers, element_bytes);
}

std::string timeline_chart(const Account& a, int lines) {
  if (a.timeline.empty()) return "";
  constexpr int width = 40;
  const std::size_t count = a.timeline.size(), rows = std::min(count, std::size_t(lines));
  std::string out;
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t begin = r * count / rows, end = (r + 1) * count / rows;
    std::size_t top = begin;
    for (std::size_t i = begin; i < end; ++i)
      if (a.timeline[i].live > a.timeline[top].live || i == a.peak_moment) top = i == a.peak_moment || top != a.peak_moment ? i : top;
    const Moment& m = a.timeline[top];
    const double part = a.peak_bytes ? double(m.live) / double(std::max(a.peak_bytes, a.timeline[a.peak_moment].live)) : 0;
    std::string bar;
    for (int i = 0; i < int(std::lround(part * width)) && i < width; ++i) bar += "█";
    const int drawn = std::min(width, int(std::lround(part * width)));
    out += fmt::format("  {:>12.3f} MB {}{} {}{}\n", double(m.live) / 1048576.0, bar, std::string(std::size_t(width - drawn), ' '), m.what,
                       top == a.peak_moment ? "   ← peak" : "");
  }
  return out;
}

double growth_exponent(std::span<const std::pair<double, double>> points) {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (const auto& [len, bytes] : points) {
    if (len <= 0 || bytes <= 0) continue;
    const double x = std::log(len), y = std::log(bytes);
    n += 1, sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  const double spread = n * sxx - sx * sx;
  return n < 2 || spread <= 0 ? 0 : (n * sxy - sx * sy) / spread;
}

}  // namespace headroom
