#include <algorithm>
#include <cstring>

#include "ops/copy/copy.h"

namespace headroom::copy {

void copy(const Tensor& from, const Tensor& to, Context& ctx) {
  const auto op = ctx.note("copy", {DType::f32}, {0, double(from.bytes() + to.bytes())});
  if (ctx.dry() || from.data == to.data) return;
  constexpr std::size_t piece = 1 << 18;
  const std::size_t bytes = from.bytes();
  ctx.share(std::int64_t((bytes + piece - 1) / piece), [&](std::int64_t p, int) {
    const std::size_t at = std::size_t(p) * piece;
    std::memcpy(to.as<char>() + at, from.as<char>() + at, std::min(piece, bytes - at));
  });
}

}  // namespace headroom::copy
