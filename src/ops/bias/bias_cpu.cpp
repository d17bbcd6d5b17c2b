#include <algorithm>

#include "base/convert.h"
#include "ops/bias/bias.h"

namespace headroom::bias {

void add(const Tensor& y, const Tensor& bias, Context& ctx) {
  const auto op = ctx.note("bias", {DType::f32}, {double(y.count()), double(2 * y.bytes() + bias.bytes())});
  if (ctx.dry()) return;
  check(!ctx.on_gpu(), Code::unsupported, "bias: no GPU kernel of this version does it; try --device cpu");
  const auto width = y.shape[1];
  with_float(y.dtype, [&]<class T>() {
    ctx.share(y.shape[0], [&](std::int64_t row, int) {
      T* out = y.as<T>() + row * width;
      const float* b = bias.as<float>();
      for (std::int64_t i = 0; i < width; ++i) out[i] = narrow<T>(widen(out[i]) + b[i]);
    });
  });
}

void backward(const Tensor& dy, const Tensor& dbias, Gradient into, Context& ctx) {
  constexpr std::int64_t most_parts = 64;  // the cut does not depend on the number of threads, so neither do the sums
  const auto rows = dy.shape[0], width = dy.shape[1], part = std::max<std::int64_t>(1, (rows + most_parts - 1) / most_parts);
  auto scope = ctx.arena.scope();
  const Tensor sums = ctx.arena.make("bias.parts", DType::f32, {(rows + part - 1) / part, width});
  const auto op = ctx.note("bias.backward", {DType::f32}, {double(dy.count()), double(dy.bytes() + dbias.bytes())});
  if (ctx.dry()) return;
  check(!ctx.on_gpu(), Code::unsupported, "bias: no GPU kernel of this version does it; try --device cpu");
  with_float(dy.dtype, [&]<class T>() {
    ctx.share(sums.shape[0], [&](std::int64_t p, int) {
      float* sum = sums.as<float>() + p * width;
      std::fill_n(sum, width, 0.0f);
      for (auto row = p * part; row < std::min(rows, (p + 1) * part); ++row)
        for (std::int64_t i = 0; i < width; ++i) sum[i] += widen(dy.as<T>()[row * width + i]);
    });
  });
  float* out = dbias.as<float>();
  if (into == Gradient::overwrite) std::fill_n(out, width, 0.0f);
  for (std::int64_t p = 0; p < sums.shape[0]; ++p)
    for (std::int64_t i = 0; i < width; ++i) out[i] += sums.as<float>()[p * width + i];
}

}  // namespace headroom::bias
