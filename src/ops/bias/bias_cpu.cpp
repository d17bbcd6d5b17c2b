#include <algorithm>

#include "base/convert.h"
#include "ops/bias/impl.h"

namespace headroom::bias {

void add_cpu(const Tensor& y, const Tensor& bias, Context& ctx) {
  const auto width = y.shape[1];
  with_float(y.dtype, [&]<class T>() {
    ctx.share(y.shape[0], [&](std::int64_t row, int) {
      T* out = y.as<T>() + row * width;
      const float* b = bias.as<float>();
      for (std::int64_t i = 0; i < width; ++i) out[i] = narrow<T>(widen(out[i]) + b[i]);
    });
  });
}

void backward_cpu(const Tensor& dy, const Tensor& dbias, Gradient into, const Parts& parts, const Tensor& sums, Context& ctx) {
  const auto rows = dy.shape[0], width = dy.shape[1];
  with_float(dy.dtype, [&]<class T>() {
    ctx.share(parts.count, [&](std::int64_t p, int) {
      float* sum = sums.as<float>() + p * width;
      std::fill_n(sum, width, 0.0f);
      for (auto row = p * parts.rows_each; row < std::min(rows, (p + 1) * parts.rows_each); ++row)
        for (std::int64_t i = 0; i < width; ++i) sum[i] += widen(dy.as<T>()[row * width + i]);
    });
  });
  float* out = dbias.as<float>();
  if (into == Gradient::overwrite) std::fill_n(out, width, 0.0f);
  for (std::int64_t p = 0; p < parts.count; ++p)
    for (std::int64_t i = 0; i < width; ++i) out[i] += sums.as<float>()[p * width + i];
}

}  // namespace headroom::bias
