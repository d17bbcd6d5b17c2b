#include <algorithm>
#include <cstring>

#include "base/convert.h"
#include "base/divide.h"
#include "ops/copy/impl.h"
#include "ops/copy/split.h"

namespace headroom::copy {

void copy_cpu(const Tensor& from, const Tensor& to, Context& ctx) {
  constexpr std::int64_t piece = 65536;
  ctx.share(ceil_div(from.count(), piece), [&](std::int64_t p, int) {
    const auto begin = p * piece, end = std::min(from.count(), begin + piece);
    if (from.dtype == to.dtype) {
      const auto size = std::int64_t(size_of(from.dtype));
      std::memcpy(to.as<char>() + begin * size, from.as<char>() + begin * size, std::size_t((end - begin) * size));
      return;
    }
    with_float(from.dtype, [&]<class From>() {
      with_float(to.dtype, [&]<class To>() {
        for (auto i = begin; i < end; ++i) to.as<To>()[i] = narrow<To>(widen(from.as<From>()[i]));
      });
    });
  });
}

void split_cpu(const Tensor& from, const Tensor& upper, const Tensor& rest, Context& ctx) {
  constexpr std::int64_t piece = 65536;
  ctx.share(ceil_div(from.count(), piece), [&](std::int64_t p, int) {
    for (auto i = p * piece; i < std::min(from.count(), (p + 1) * piece); ++i) {
      const Halves h = split(from.as<float>()[i]);
      upper.as<bf16>()[i] = h.upper;
      rest.as<std::uint16_t>()[i] = h.rest;
    }
  });
}

}  // namespace headroom::copy
