#include "ops/attention/dropout.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/attention.h"

namespace headroom::attention {

Dropout dropout_of(const Problem& p, const Extras& with) {
  const auto halves = [](std::uint64_t x, std::uint32_t(&to)[2]) {
    to[0] = std::uint32_t(x);
    to[1] = std::uint32_t(x >> 32);
  };
  Dropout d{};
  d.random = with.random.as<std::uint32_t>();
  halves(with.seed, d.seed);
  halves(with.offset, d.offset);
  d.below = std::uint32_t(std::min(std::lround(double(p.dropout) * draw_steps), draw_steps - 1l));
  d.factor = float(double(draw_steps) / (draw_steps - d.below));
  return d;
}

std::optional<Dropping> dropping_of(const Problem& p, const Extras& with) {
  if (p.dropout == 0) return {};
  const Dropout d = dropout_of(p, with);
  return Dropping{d, d.draws()};
}

void dropout_factors(const Dropping& d, std::int64_t pair, std::int64_t row, std::int64_t first, std::int64_t last, float kept, float* to) {
  const HeadDraws draws = d.draws.of_head(std::uint32_t(pair));
  const int shift = int(row / 8 % 2 * 16);
  for (std::int64_t begin = first / 16 * 16; begin < last; begin += 16)
    for (std::int64_t k = 0; k < 8; ++k) {
      const TwoWords x = draws.at(std::uint32_t(row), std::uint32_t(begin + k));
      for (std::int64_t word = 0; word < 2; ++word)
        if (const std::int64_t key = begin + 8 * word + k; key >= first && key < last)
          to[key - first] = (x.word[word] >> shift) % draw_steps < d.dropout.below ? 0.0f : kept;
    }
}

}  // namespace headroom::attention
