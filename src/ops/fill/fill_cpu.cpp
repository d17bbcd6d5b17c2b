#include <algorithm>

#include "base/divide.h"
#include "ops/fill/impl.h"

namespace headroom::fill {

namespace {
template <class Value>
void each(const Tensor& t, Context& ctx, Value&& value) {
  constexpr std::int64_t piece = 16384;
  ctx.share(ceil_div(t.count(), piece), [&](std::int64_t at, int) {
    for (auto i = at * piece; i < std::min(t.count(), (at + 1) * piece); ++i) t.as<float>()[i] = value(i);
  });
}
}  // namespace

void constant_cpu(const Tensor& t, double value, Context& ctx) {
  each(t, ctx, [&](std::int64_t) { return float(value); });
}

void normal_cpu(const Tensor& t, const Random& random, double mean, double std, std::int64_t first, Context& ctx) {
  each(t, ctx, [&](std::int64_t i) { return float(mean + std * double(random.normal(std::uint64_t(first + i)))); });
}

}  // namespace headroom::fill
