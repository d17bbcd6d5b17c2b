#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layernorm/layernorm_cpu.cpp"
#include "ops/simd_targets.h"  // before anything of Highway

#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include <algorithm>

#include "base/divide.h"
#include "ops/layernorm/impl.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::layernorm {
namespace HWY_NAMESPACE {

using headroom::HWY_NAMESPACE::sum_over;

template <class T>
void forward_row(const Forward& t, std::int64_t row) {
  const auto n = t.x.shape[1];
  const T* x = t.x.as<T>() + row * n;
  T* y = t.y.as<T>() + row * n;
  const float *weight = t.weight.as<float>(), *bias = t.bias.as<float>();
  const float mean = sum_over(n, [&](std::int64_t i) { return widen(x[i]); }) / float(n);
  const float variance = sum_over(n,
                                  [&](std::int64_t i) {
                                    const float v = widen(x[i]) - mean;
                                    return v * v;
                                  }) /
                         float(n);
  const float r = 1.0f / std::sqrt(variance + t.eps);
  for (std::int64_t i = 0; i < n; ++i) y[i] = narrow<T>((widen(x[i]) - mean) * r * weight[i] + bias[i]);
  t.mean.as<float>()[row] = mean, t.rstd.as<float>()[row] = r;
}

// dx = r·(w·dy − mean(w·dy) − x̂·mean(w·dy·x̂)), x̂ = r·(x − mean).
template <class T>
void backward_row(const Backward& t, std::int64_t row, float* dweight, float* dbias) {
  const auto n = t.x.shape[1];
  const T *x = t.x.as<T>() + row * n, *dy = t.dy.as<T>() + row * n;
  T* dx = t.dx.as<T>() + row * n;
  const float *weight = t.weight.as<float>(), center = t.mean.as<float>()[row], r = t.rstd.as<float>()[row];
  const bool add = t.into_dx == Gradient::accumulate;
  const float plain = sum_over(n, [&](std::int64_t i) { return weight[i] * widen(dy[i]); }) / float(n);
  const float along = sum_over(n, [&](std::int64_t i) { return weight[i] * widen(dy[i]) * ((widen(x[i]) - center) * r); }) / float(n);
  for (std::int64_t i = 0; i < n; ++i) {
    const float unit = (widen(x[i]) - center) * r, g = widen(dy[i]);
    const float value = r * (weight[i] * g - plain - unit * along);
    dweight[i] += g * unit;
    dbias[i] += g;
    dx[i] = narrow<T>(add ? widen(dx[i]) + value : value);
  }
}

void forward_rows(const Forward& t, std::int64_t begin, std::int64_t end) {
  with_float(t.x.dtype, [&]<class T>() {
    for (auto row = begin; row < end; ++row) forward_row<T>(t, row);
  });
}
void backward_rows(const Backward& t, std::int64_t begin, std::int64_t end, float* sums) {
  with_float(t.x.dtype, [&]<class T>() {
    for (auto row = begin; row < end; ++row) backward_row<T>(t, row, sums, sums + t.x.shape[1]);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom::layernorm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::layernorm {

HWY_EXPORT(forward_rows);
HWY_EXPORT(backward_rows);

void forward_cpu(const Forward& t, Context& ctx) {
  const auto rows = t.x.shape[0], part = std::max<std::int64_t>(1, ceil_div(rows, 64));
  ctx.share(ceil_div(rows, part), [&](std::int64_t p, int) {
    HWY_DYNAMIC_DISPATCH(forward_rows)(t, p * part, std::min(rows, (p + 1) * part));
  });
}

void backward_cpu(const Backward& t, const Parts& parts, const Tensor& sums, Context& ctx) {
  const auto rows = t.x.shape[0], width = t.x.shape[1];
  ctx.share(parts.count, [&](std::int64_t p, int) {
    float* sum = sums.as<float>() + p * 2 * width;
    std::fill_n(sum, 2 * width, 0.0f);
    HWY_DYNAMIC_DISPATCH(backward_rows)(t, p * parts.rows_each, std::min(rows, (p + 1) * parts.rows_each), sum);
  });
  for (const auto& [out, from] : {std::pair{t.dweight.as<float>(), std::int64_t(0)}, std::pair{t.dbias.as<float>(), width}}) {
    if (t.into_weights == Gradient::overwrite) std::fill_n(out, width, 0.0f);
    for (std::int64_t p = 0; p < parts.count; ++p)
      for (std::int64_t i = 0; i < width; ++i) out[i] += sums.as<float>()[p * 2 * width + from + i];
  }
}

}  // namespace headroom::layernorm
#endif
