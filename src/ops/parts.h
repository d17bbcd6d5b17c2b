// How an op that sums over rows cuts them: into parts whose sums are taken apart and then added in order. The cut depends on the number
// of rows alone, so the bits depend neither on the number of threads nor on the size of the card.
#pragma once
#include <algorithm>

#include "ops/op.h"

namespace headroom {

struct Parts {
  std::int64_t rows_each, count;
};

inline Parts parts_of(std::int64_t rows, const Context& ctx, std::int64_t most_on_gpu = 512) {
  const std::int64_t most = ctx.on_gpu() ? most_on_gpu : 64, each = std::max<std::int64_t>(1, (rows + most - 1) / most);
  return {each, (rows + each - 1) / each};
}

}  // namespace headroom
