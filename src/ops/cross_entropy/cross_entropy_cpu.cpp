#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cross_entropy/cross_entropy_cpu.cpp"
#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include "ops/cross_entropy/impl.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::cross_entropy {
namespace HWY_NAMESPACE {

using namespace headroom::HWY_NAMESPACE;

void run_row(const Rows& t, std::int64_t row, float scale) {
  const auto vocab = t.logits.shape[1];
  float* x = t.logits.as<float>() + row * vocab;
  const auto target = t.targets.as<std::int32_t>()[row];
  const float at_target = x[target], top = max_over(vocab, x);
  float sum;
  if (!t.dlogits) {
    sum = sum_over(vocab, [&](std::int64_t v) { return exp_of(x[v] - top); });
  } else {
    for (std::int64_t v = 0; v < vocab; ++v) x[v] = exp_of(x[v] - top);
    sum = sum_over(vocab, [&](std::int64_t v) { return x[v]; });
  }
  t.losses.as<float>()[row] = std::log(sum) + (top - at_target);
  if (!t.dlogits) return;
  const float factor = scale / sum;
  const float hit = x[target] * factor - scale;
  with_float(t.dlogits.dtype, [&]<class T>() {
    T* d = t.dlogits.as<T>() + row * t.dlogits.stride[0];
    // d may be x: its element v lies at or before x's, and chunks go upwards through a buffer, so nothing unread is overwritten.
    constexpr std::int64_t chunk = 256;
    T narrowed[chunk];
    for (std::int64_t v = 0; v < vocab; v += chunk) {
      const auto n = vocab - v < chunk ? vocab - v : chunk;
      for (std::int64_t i = 0; i < n; ++i) narrowed[i] = narrow<T>(x[v + i] * factor);
      std::memcpy(static_cast<void*>(d + v), narrowed, std::size_t(n) * sizeof(T));
    }
    d[target] = narrow<T>(hit);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom::cross_entropy
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::cross_entropy {

HWY_EXPORT(run_row);

void run_cpu(const Rows& t, Context& ctx) {
  const float scale = t.loss_scale ? float(double(t.scale) * *t.loss_scale) : t.scale;
  ctx.share(t.logits.shape[0], [&](std::int64_t row, int) { HWY_DYNAMIC_DISPATCH(run_row)(t, row, scale); });
}

void add_up_cpu(const Tensor& losses, double scale, bool add, const Tensor& total) {
  double sum = 0;
  for (std::int64_t i = 0; i < losses.count(); ++i) sum += double(losses.as<float>()[i]);
  double& out = *total.as<double>();
  out = scale * sum + (add ? out : 0.0);
}

}  // namespace headroom::cross_entropy
#endif
