#include <algorithm>

#include "base/convert.h"
#include "base/divide.h"
#include "ops/embedding/impl.h"

namespace headroom::embedding {

namespace {
constexpr std::int64_t columns_per_piece = 64;  // backward is split by columns: each piece adds all rows in order, on any thread

// set(to, from): one number of x, and the one of its token in the table.
template <class Set>
void each_number(const Tensor& table, const Tensor& tokens, const Tensor& x, Context& ctx, Set set) {
  const auto width = x.shape[1];
  with_float(table.dtype, [&]<class From>() {
    with_float(x.dtype, [&]<class To>() {
      ctx.share(x.shape[0], [&](std::int64_t row, int) {
        const From* from = table.as<From>() + std::int64_t(tokens.as<std::int32_t>()[row]) * width;
        To* to = x.as<To>() + row * width;
        for (std::int64_t i = 0; i < width; ++i) set(to[i], widen(from[i]));
      });
    });
  });
}

}  // namespace

void forward_cpu(const Tensor& table, const Tensor& tokens, const Tensor& x, float scale, Context& ctx) {
  each_number(table, tokens, x, ctx, [scale]<class To>(To& to, float from) { to = narrow<To>(scale * from); });
}

void add_cpu(const Tensor& table, const Tensor& tokens, const Tensor& x, Context& ctx) {
  each_number(table, tokens, x, ctx, []<class To>(To& to, float from) { to = narrow<To>(widen(to) + from); });
}

void backward_cpu(const Tensor& tokens, const Tensor& dx, const Tensor& dtable, Gradient into_dtable, float scale, Context& ctx) {
  const bool clear = into_dtable == Gradient::overwrite;
  const auto rows = dx.shape[0], width = dx.shape[1], vocab = dtable.shape[0];
  with_float(dx.dtype, [&]<class T>() {
    ctx.share(ceil_div(width, columns_per_piece), [&](std::int64_t piece, int) {
      const auto begin = piece * columns_per_piece, end = std::min(width, begin + columns_per_piece);
      float* out = dtable.as<float>();
      if (clear)
        for (std::int64_t v = 0; v < vocab; ++v) std::fill(out + v * width + begin, out + v * width + end, 0.0f);
      for (std::int64_t row = 0; row < rows; ++row) {
        float* to = out + std::int64_t(tokens.as<std::int32_t>()[row]) * width;
        const T* from = dx.as<T>() + row * width;
        for (auto i = begin; i < end; ++i) to[i] += scale * widen(from[i]);
      }
    });
  });
}

}  // namespace headroom::embedding
