#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layernorm/layernorm_cpu.cpp"
#include "ops/simd_targets.h"  // before anything of Highway

#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include "ops/layernorm/impl.h"
#include "ops/part_sums.h"
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
  const auto rows = t.x.shape[0];
  each_part(parts_of(rows, ctx), rows, ctx, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward_rows)(t, begin, end);
  });
}

void backward_cpu(const Backward& t, const Parts& parts, const Tensor& sums, Context& ctx) {
  sum_parts(sums, parts, t.x.shape[0], ctx, [&](float* sum, std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(backward_rows)(t, begin, end, sum);
  });
  add_parts(sums, t.dweight, t.into_weights);
  add_parts(sums, t.dbias, t.into_weights, t.x.shape[1]);
}

}  // namespace headroom::layernorm
#endif
