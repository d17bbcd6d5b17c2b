#include "engine/data/feed_random.h"

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace headroom::engine {

void feed_random(Training& t, std::uint64_t seed, int micro, const std::vector<std::int64_t>& documents) {
  const Random random{seed};
  const auto vocab = std::uint64_t(t.recipe().model.vocab);
  std::vector<std::int32_t> tokens(std::size_t(t.recipe().batch * t.recipe().len)), targets(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = std::int32_t(random.below(2 * i, vocab));
    targets[i] = std::int32_t(random.below(2 * i + 1, vocab));
  }
  if (documents.empty()) return t.feed(micro, tokens, targets);
  const Recipe& r = t.recipe();
  std::vector<std::int32_t> borders;
  double predicted = 0;
  for (std::int64_t b = 0; b < r.batch; ++b) {
    borders.push_back(0);
    for (const auto len : documents) borders.push_back(borders.back() + std::int32_t(len));
    std::fill(targets.begin() + b * r.len + borders.back(), targets.begin() + (b + 1) * r.len, -1);
    predicted += double(borders.back());
  }
  t.feed(micro, tokens, targets, {borders, predicted * r.micro_batches_of_all()});
}

}  // namespace headroom::engine
