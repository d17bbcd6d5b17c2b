#include "memory/account.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>

namespace headroom {

std::string formula_of(const Shape& probe, const Shape& shape, std::size_t element_bytes, std::span<const Symbol> symbols) {
  std::string in_symbols, in_numbers;
  bool named = false;
  for (int i = 0; i < shape.rank; ++i) {
    std::string word = std::to_string(shape[i]);
    if (probe.rank == shape.rank)
      for (const Symbol& s : symbols)
        if (s.probe == probe[i] && s.value == shape[i]) word = s.name, named = true;
    if (shape[i] != 1 || word != "1") in_symbols += word + "·";
    in_numbers += fmt::format("{}·", shape[i]);
  }
  const std::string numbers = fmt::format("{}{}", in_numbers, element_bytes);
  return named ? fmt::format("{}{} = {}", in_symbols, element_bytes, numbers) : numbers;
}

std::string formula_of_several(std::size_t count, const std::string& of_one) {
  if (count < 2) return of_one;
  const auto equals = of_one.find(" = ");
  if (equals == std::string::npos) return fmt::format("{} × {}", count, of_one);
  return fmt::format("{0} × {1} = {0} × {2}", count, of_one.substr(0, equals), of_one.substr(equals + 3));
}

std::vector<Component> blocks_together(const std::vector<Component>& all) {
  std::vector<Component> out;
  std::map<std::tuple<std::string, std::string, std::string, std::string, bool>, std::size_t> place;
  for (Component c : all) {
    constexpr std::string_view block = "block ";
    if (const auto digits = c.name.find(block); digits != std::string::npos) {  // also within "d(block 3 q)"
      const auto end = c.name.find(' ', digits + block.size());
      if (end != std::string::npos) c.name.erase(digits, end + 1 - digits);
    }
    const auto [at, fresh] = place.try_emplace({c.name, c.shape, c.dtype, c.phase, c.at_peak}, out.size());
    if (fresh) {
      out.push_back(std::move(c));
      continue;
    }
    Component& sum = out[at->second];
    sum.bytes += c.bytes;
    sum.taken += c.taken;
    sum.share += c.share;
    sum.count += c.count;
  }
  for (Component& c : out) c.formula = formula_of_several(std::size_t(c.count), c.formula);
  return out;
}

std::vector<std::size_t> moments_worth_showing(const Account& a, std::size_t most) {
  std::vector<std::size_t> out;
  const std::size_t count = a.timeline.size(), stretches = std::min(count, most);
  for (std::size_t s = 0; s < stretches; ++s) {
    const std::size_t begin = s * count / stretches, end = (s + 1) * count / stretches;
    std::size_t top = begin;
    for (std::size_t i = begin; i < end; ++i)
      if (a.timeline[i].live > a.timeline[top].live) top = i;
    out.push_back(a.peak_moment >= begin && a.peak_moment < end ? a.peak_moment : top);
  }
  return out;
}

double growth_exponent(std::span<const std::pair<double, double>> points) {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (const auto& [len, bytes] : points) {
    if (len <= 0 || bytes <= 0) continue;
    const double x = std::log(len), y = std::log(bytes);
    n += 1;
    sx += x;
    sy += y;
    sxx += x * x;
    sxy += x * y;
  }
  const double spread = n * sxx - sx * sx;
  return n < 2 || spread <= 0 ? 0 : (n * sxy - sx * sy) / spread;
}

}  // namespace headroom
