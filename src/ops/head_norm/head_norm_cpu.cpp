#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/head_norm/head_norm_cpu.cpp"
#include "ops/simd_targets.h"  // before anything of Highway

#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include "ops/head_norm/impl.h"
#include "ops/part_sums.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::head_norm {
namespace HWY_NAMESPACE {

using headroom::HWY_NAMESPACE::sum_over;

// Where in the table the cosines and sines of a row are.
template <class Arguments>
const float* turn_of(const Arguments& t, std::int64_t b, std::int64_t row) {
  const std::int64_t position = t.positions ? t.positions.template as<std::int32_t>()[b * t.x.shape[1] + row] : row;
  return t.table.template as<float>() + position * t.x.shape[3];
}

template <class T>
T* head_of(const Tensor& t, std::int64_t b, std::int64_t position, std::int64_t head) {
  return t.as<T>() + b * t.stride[0] + position * t.stride[1] + head * t.stride[2];
}

template <class T>
float root_of(const T* x, std::int64_t n, float eps) {  // 1 / √(mean(x²) + eps)
  return 1.0f / std::sqrt(sum_over(n, [&](std::int64_t i) { return widen(x[i]) * widen(x[i]); }) / float(n) + eps);
}

void forward_position(const Forward& t, std::int64_t b, std::int64_t position) {
  const auto n = t.x.shape[3], half = n / 2;
  const float *cosine = turn_of(t, b, position), *sine = cosine + half, *w = t.weight.as<float>();
  with_float(t.x.dtype, [&]<class T>() {
    for (std::int64_t h = 0; h < t.x.shape[2]; ++h) {
      const T* x = head_of<T>(t.x, b, position, h);
      T* y = head_of<T>(t.y, b, position, h);
      const float r = root_of(x, n, t.eps);
      for (std::int64_t i = 0; i < half; ++i) {
        const float u = widen(x[i]) * r * w[i], v = widen(x[half + i]) * r * w[half + i];
        y[i] = narrow<T>(u * cosine[i] - v * sine[i]);
        y[half + i] = narrow<T>(v * cosine[i] + u * sine[i]);
      }
    }
  });
}

// g = d rotated back; dweight += g·x̂; dx = r·(w·g − x̂·mean(w·g·x̂)), x̂ = r·x.
void backward_position(const Backward& t, std::int64_t b, std::int64_t position, float* dweight) {
  const auto n = t.x.shape[3], half = n / 2;
  const float *cosine = turn_of(t, b, position), *sine = cosine + half, *w = t.weight.as<float>();
  with_float(t.x.dtype, [&]<class T>() {
    for (std::int64_t h = 0; h < t.x.shape[2]; ++h) {
      const T* x = head_of<T>(t.x, b, position, h);
      T* d = head_of<T>(t.d, b, position, h);
      const float r = root_of(x, n, t.eps);
      float g[most_dim] = {};
      for (std::int64_t i = 0; i < half; ++i) {
        const float u = widen(d[i]), v = widen(d[half + i]);
        g[i] = u * cosine[i] + v * sine[i];
        g[half + i] = v * cosine[i] - u * sine[i];
      }
      const float mean = sum_over(n, [&](std::int64_t i) { return w[i] * g[i] * widen(x[i]); }) * r / float(n);
      for (std::int64_t i = 0; i < n; ++i) {
        const float unit = widen(x[i]) * r;
        dweight[i] += g[i] * unit;
        d[i] = narrow<T>(r * (w[i] * g[i] - unit * mean));
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom::head_norm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::head_norm {

HWY_EXPORT(forward_position);
HWY_EXPORT(backward_position);

void forward_cpu(const Forward& t, Context& ctx) {
  const auto len = t.x.shape[1];
  ctx.share(t.x.shape[0] * len, [&](std::int64_t at, int) { HWY_DYNAMIC_DISPATCH(forward_position)(t, at / len, at % len); });
}

void backward_cpu(const Backward& t, const Parts& parts, const Tensor& sums, Context& ctx) {
  const auto len = t.x.shape[1];
  sum_parts(sums, parts, t.x.shape[0] * len, ctx, [&](float* sum, std::int64_t begin, std::int64_t end) {
    for (auto at = begin; at < end; ++at) HWY_DYNAMIC_DISPATCH(backward_position)(t, at / len, at % len, sum);
  });
  add_parts(sums, t.dweight, t.into_dweight);
}

}  // namespace headroom::head_norm
#endif
