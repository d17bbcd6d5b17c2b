#include "base/convert.h"
#include "ops/bias/impl.h"
#include "ops/part_sums.h"

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
    sum_parts(sums, parts, rows, ctx, [&](float* sum, std::int64_t begin, std::int64_t end) {
      for (auto row = begin; row < end; ++row)
        for (std::int64_t i = 0; i < width; ++i) sum[i] += widen(dy.as<T>()[row * width + i]);
    });
  });
  add_parts(sums, dbias, into);
}

}  // namespace headroom::bias
