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
    // d may be x. Its element v is at or before x's, and chunks go upwards through a buffer, so unread logits are not overwritten.
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

// The same for logits in 16 bits, widened a piece at a time: the logits are read three times and exp is computed twice.
template <class L>
void run_narrow_row(const Rows& t, std::int64_t row, float scale) {
  constexpr std::int64_t most = 256;
  const auto vocab = t.logits.shape[1];
  const L* x = t.logits.as<L>() + row * vocab;
  float piece[most];
  const auto each = [&](auto&& f) {  // f(first element, elements), widened in `piece`
    for (std::int64_t v = 0; v < vocab; v += most) {
      const auto n = std::min(most, vocab - v);
      for (std::int64_t i = 0; i < n; ++i) piece[i] = widen(x[v + i]);
      f(v, n);
    }
  };
  const auto target = t.targets.as<std::int32_t>()[row];
  const float at_target = widen(x[target]);
  float top = -std::numeric_limits<float>::infinity(), sum = 0;
  each([&](std::int64_t, std::int64_t n) { top = std::max(top, max_over(n, piece)); });
  each([&](std::int64_t, std::int64_t n) { sum += sum_over(n, [&](std::int64_t i) { return exp_of(piece[i] - top); }); });
  t.losses.as<float>()[row] = std::log(sum) + (top - at_target);
  if (!t.dlogits) return;
  const float factor = scale / sum;
  with_float(t.dlogits.dtype, [&]<class T>() {
    T* d = t.dlogits.as<T>() + row * t.dlogits.stride[0];
    each([&](std::int64_t v, std::int64_t n) {  // d may be x: a piece is read before it is overwritten
      for (std::int64_t i = 0; i < n; ++i) piece[i] = exp_of(piece[i] - top) * factor;
      if (target >= v && target < v + n) piece[target - v] -= scale;
      for (std::int64_t i = 0; i < n; ++i) d[v + i] = narrow<T>(piece[i]);
    });
  });
}

void run_bf16_row(const Rows& t, std::int64_t row, float scale) { run_narrow_row<bf16>(t, row, scale); }
void run_f16_row(const Rows& t, std::int64_t row, float scale) { run_narrow_row<f16>(t, row, scale); }

}  // namespace HWY_NAMESPACE
}  // namespace headroom::cross_entropy
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::cross_entropy {

HWY_EXPORT(run_row);
HWY_EXPORT(run_bf16_row);
HWY_EXPORT(run_f16_row);

void run_cpu(const Rows& t, Context& ctx) {
  const float scale = t.loss_scale ? float(double(t.scale) * *t.loss_scale) : t.scale;
  ctx.share(t.logits.shape[0], [&](std::int64_t row, int) {
    switch (t.logits.dtype) {
      case DType::bf16: return HWY_DYNAMIC_DISPATCH(run_bf16_row)(t, row, scale);
      case DType::f16: return HWY_DYNAMIC_DISPATCH(run_f16_row)(t, row, scale);
      default: return HWY_DYNAMIC_DISPATCH(run_row)(t, row, scale);
    }
  });
}

void add_up_cpu(const Tensor& losses, double scale, bool add, const Tensor& total) {
  double sum = 0;
  for (std::int64_t i = 0; i < losses.count(); ++i) sum += double(losses.as<float>()[i]);
  double& out = *total.as<double>();
  out = scale * sum + (add ? out : 0.0);
}

}  // namespace headroom::cross_entropy
#endif
