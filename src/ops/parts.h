// How an op that sums over rows splits them: into parts that are summed separately and then added in order. The split depends on the number
// of rows alone, so the bits depend neither on the number of threads nor on the size of the card.
#pragma once
#include <algorithm>

#include "base/divide.h"
#include "ops/op.h"

namespace headroom {

struct Parts {
  std::int64_t rows_each, count;
};

inline Parts parts_of(std::int64_t rows, const Context& ctx, std::int64_t most_on_gpu = 512) {
  const std::int64_t most = ctx.on_gpu() ? most_on_gpu : 64, each = std::max<std::int64_t>(1, ceil_div(rows, most));
  return {each, ceil_div(rows, each)};
}

// f(part, its first row, one behind its last): threads share the parts.
template <class F>
void each_part(const Parts& parts, std::int64_t rows, Context& ctx, F f) {
  ctx.share(parts.count, [&](std::int64_t part, int) { f(part, part * parts.rows_each, std::min(rows, (part + 1) * parts.rows_each)); });
}

}  // namespace headroom
