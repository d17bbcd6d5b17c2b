#include "engine/feed_random.h"

#include <vector>

#include "base/random.h"

namespace headroom::engine {

void feed_random(Training& t, std::uint64_t seed, int micro) {
  const Random random{seed};
  const auto vocab = std::uint64_t(t.recipe().model.vocab);
  std::vector<std::int32_t> tokens(std::size_t(t.recipe().batch * t.recipe().len)), targets(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = std::int32_t(random.below(2 * i, vocab));
    targets[i] = std::int32_t(random.below(2 * i + 1, vocab));
  }
  t.feed(micro, tokens, targets);
}

}  // namespace headroom::engine
