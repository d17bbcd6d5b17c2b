#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rmsnorm/rmsnorm_cpu.cpp"
#include "ops/simd_targets.h"  // before anything of Highway

#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include "ops/part_sums.h"
#include "ops/rmsnorm/impl.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::rmsnorm {
namespace HWY_NAMESPACE {

using headroom::HWY_NAMESPACE::sum_over;

template <class T>
void forward_row(const T* x, const float* weight, const T* residual, T* y, float* rstd, std::int64_t n, float eps) {
  const float r = 1.0f / std::sqrt(sum_over(n,
                                            [&](std::int64_t i) {
                                              const float v = widen(x[i]);
                                              return v * v;
                                            }) /
                                       float(n) +
                                   eps);
  *rstd = r;
  if (!y) return;
  if (residual)
    for (std::int64_t i = 0; i < n; ++i) y[i] = narrow<T>(widen(residual[i]) + widen(x[i]) * r * weight[i]);
  else
    for (std::int64_t i = 0; i < n; ++i) y[i] = narrow<T>(widen(x[i]) * r * weight[i]);
}

// dx = r·(w·dy − x̂·mean(w·dy·x̂)), x̂ = r·x.
template <class T>
void backward_row(const T* x, const float* weight, float r, const T* dy, T* dx, float* dweight, std::int64_t n, bool add) {
  const float mean = sum_over(n, [&](std::int64_t i) { return weight[i] * widen(dy[i]) * widen(x[i]); }) * r / float(n);
  for (std::int64_t i = 0; i < n; ++i) {
    const float unit = widen(x[i]) * r, g = widen(dy[i]);
    const float value = r * (weight[i] * g - unit * mean);
    dweight[i] += g * unit;
    dx[i] = narrow<T>(add ? widen(dx[i]) + value : value);
  }
}

void forward_rows(const Forward& t, std::int64_t begin, std::int64_t end) {
  const auto n = t.x.shape[1];
  with_float(t.x.dtype, [&]<class T>() {
    for (auto r = begin; r < end; ++r)
      forward_row(t.x.as<T>() + r * t.x.stride[0], t.weight.as<float>(),
                  t.residual ? t.residual.as<T>() + r * t.residual.stride[0] : nullptr, t.y ? t.y.as<T>() + r * t.y.stride[0] : nullptr,
                  t.rstd.as<float>() + r, n, t.eps);
  });
}
void backward_rows(const Backward& t, std::int64_t begin, std::int64_t end, float* dweight) {
  const auto n = t.x.shape[1];
  with_float(t.x.dtype, [&]<class T>() {
    for (auto r = begin; r < end; ++r)
      backward_row(t.x.as<T>() + r * t.x.stride[0], t.weight.as<float>(), t.rstd.as<float>()[r], t.dy.as<T>() + r * t.dy.stride[0],
                   t.dx.as<T>() + r * t.dx.stride[0], dweight, n, t.into_dx == Gradient::accumulate);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom::rmsnorm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::rmsnorm {

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
  add_parts(sums, t.dweight, t.into_dweight);
}

}  // namespace headroom::rmsnorm
#endif
