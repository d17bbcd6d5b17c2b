#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rope/rope_cpu.cpp"
#include "ops/simd_targets.h"  // before anything of Highway

#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include "ops/rope/impl.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::rope {
namespace HWY_NAMESPACE {

void rotate_row(const Tensor& x, const Tensor& table, std::int64_t b, std::int64_t row, std::int64_t position, float sign) {
  const auto half = x.shape[3] / 2;
  const float *cosine = table.as<float>() + position * 2 * half, *sine = cosine + half;
  with_float(x.dtype, [&]<class T>() {
    for (std::int64_t h = 0; h < x.shape[2]; ++h) {
      T* first = x.as<T>() + b * x.stride[0] + row * x.stride[1] + h * x.stride[2];
      T* second = first + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const float u = widen(first[i]), v = widen(second[i]), s = sign * sine[i];
        first[i] = narrow<T>(u * cosine[i] - v * s);
        second[i] = narrow<T>(v * cosine[i] + u * s);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom::rope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::rope {

HWY_EXPORT(rotate_row);

void fill_cpu(const Tensor& table, double theta, std::int64_t first) {
  const auto half = table.shape[1] / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -double(i) / double(half));
    for (std::int64_t position = 0; position < table.shape[0]; ++position) {
      float* row = table.as<float>() + position * 2 * half;
      row[i] = float(std::cos(double(first + position) * frequency));
      row[half + i] = float(std::sin(double(first + position) * frequency));
    }
  }
}

void rotate_cpu(const Tensor& x, const Tensor& table, Turn turn, const Tensor& positions, Context& ctx) {
  ctx.share(x.shape[0] * x.shape[1], [&](std::int64_t at, int) {
    const std::int64_t row = at % x.shape[1], position = positions ? positions.as<std::int32_t>()[at] : row;
    HWY_DYNAMIC_DISPATCH(rotate_row)(x, table, at / x.shape[1], row, position, turn == Turn::forward ? 1.0f : -1.0f);
  });
}

}  // namespace headroom::rope
#endif
