#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cross_entropy/cross_entropy_cpu.cpp"
#include "ops/simd_targets.h"  // before anything of Highway

#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include "ops/cross_entropy/impl.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::cross_entropy {
namespace HWY_NAMESPACE {

using namespace headroom::HWY_NAMESPACE;

void predict_nothing(const Rows& t, std::int64_t row) {
  t.losses.as<float>()[row] = 0;
  if (!t.dlogits) return;
  with_float(t.dlogits.dtype, [&]<class T>() { std::fill_n(t.dlogits.as<T>() + row * t.dlogits.stride[0], t.dlogits.shape[1], T{}); });
}

void run_row(const Rows& t, std::int64_t row, float scale) {
  const auto vocab = t.logits.shape[1];
  float* x = t.logits.as<float>() + row * vocab;
  const auto target = t.targets.as<std::int32_t>()[row];
  if (target < 0) return predict_nothing(t, row);
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

// cap · tanh(x / cap), by e^−2|x / cap|: its error is that of a rounding of cap itself.
inline float capped(float x, float cap) {
  const float t = exp_of(-2 * std::abs(x) / cap), bent = cap * ((1 - t) / (1 + t));
  return x < 0 ? -bent : bent;
}

// The same for logits in 16 bits, and for those that are capped: widened a piece at a time, read three times, exp computed twice.
template <class L>
void run_narrow_row(const Rows& t, std::int64_t row, float scale) {
  constexpr std::int64_t most = 256;
  const auto vocab = t.logits.shape[1];
  const L* x = t.logits.as<L>() + row * vocab;
  const auto target = t.targets.as<std::int32_t>()[row];
  if (target < 0) return predict_nothing(t, row);
  float piece[most];
  const auto each = [&](auto&& f) {  // f(first element, elements), widened in `piece`
    for (std::int64_t v = 0; v < vocab; v += most) {
      const auto n = std::min(most, vocab - v);
      for (std::int64_t i = 0; i < n; ++i) piece[i] = widen(x[v + i]);
      if (t.softcap > 0)
        for (std::int64_t i = 0; i < n; ++i) piece[i] = capped(piece[i], t.softcap);
      f(v, n);
    }
  };
  const float at_target = t.softcap > 0 ? capped(widen(x[target]), t.softcap) : widen(x[target]);
  float top = -std::numeric_limits<float>::infinity(), sum = 0;
  each([&](std::int64_t, std::int64_t n) { top = std::max(top, max_over(n, piece)); });
  each([&](std::int64_t, std::int64_t n) { sum += sum_over(n, [&](std::int64_t i) { return exp_of(piece[i] - top); }); });
  t.losses.as<float>()[row] = std::log(sum) + (top - at_target);
  if (!t.dlogits) return;
  const float factor = scale / sum;
  with_float(t.dlogits.dtype, [&]<class T>() {
    T* d = t.dlogits.as<T>() + row * t.dlogits.stride[0];
    each([&](std::int64_t v, std::int64_t n) {  // d may be x: a piece is read before it is overwritten
      float slope[most];                        // the cap's
      if (t.softcap > 0)
        for (std::int64_t i = 0; i < n; ++i) slope[i] = 1 - piece[i] / t.softcap * (piece[i] / t.softcap);
      for (std::int64_t i = 0; i < n; ++i) piece[i] = exp_of(piece[i] - top) * factor;
      if (target >= v && target < v + n) piece[target - v] -= scale;
      if (t.softcap > 0)
        for (std::int64_t i = 0; i < n; ++i) piece[i] *= slope[i];
      T narrowed[most];
      for (std::int64_t i = 0; i < n; ++i) narrowed[i] = narrow<T>(piece[i]);
      std::memcpy(static_cast<void*>(d + v), narrowed, std::size_t(n) * sizeof(T));
    });
  });
}

void cap_row(const Tensor& logits, std::int64_t row, float cap) {
  float* x = logits.as<float>() + row * logits.shape[1];
  for (std::int64_t v = 0; v < logits.shape[1]; ++v) x[v] = capped(x[v], cap);
}
void run_f32_row(const Rows& t, std::int64_t row, float scale) {
  t.softcap > 0 ? run_narrow_row<float>(t, row, scale) : run_row(t, row, scale);
}
void run_bf16_row(const Rows& t, std::int64_t row, float scale) { run_narrow_row<bf16>(t, row, scale); }
void run_f16_row(const Rows& t, std::int64_t row, float scale) { run_narrow_row<f16>(t, row, scale); }

}  // namespace HWY_NAMESPACE
}  // namespace headroom::cross_entropy
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::cross_entropy {

HWY_EXPORT(run_f32_row);
HWY_EXPORT(cap_row);
HWY_EXPORT(run_bf16_row);
HWY_EXPORT(run_f16_row);

void run_cpu(const Rows& t, Context& ctx) {
  const float each = t.over ? float(double(t.scale) / *t.over) : t.scale;
  const float scale = t.loss_scale ? float(double(each) * *t.loss_scale) : each;
  ctx.share(t.logits.shape[0], [&](std::int64_t row, int) {
    switch (t.logits.dtype) {
      case DType::bf16: return HWY_DYNAMIC_DISPATCH(run_bf16_row)(t, row, scale);
      case DType::f16: return HWY_DYNAMIC_DISPATCH(run_f16_row)(t, row, scale);
      default: return HWY_DYNAMIC_DISPATCH(run_f32_row)(t, row, scale);
    }
  });
}

void cap_cpu(const Tensor& logits, float softcap, Context& ctx) {
  ctx.share(logits.shape[0], [&](std::int64_t row, int) { HWY_DYNAMIC_DISPATCH(cap_row)(logits, row, softcap); });
}

void add_up_cpu(const Tensor& losses, double scale, bool add, const Tensor& total, const double* over) {
  double sum = 0;
  for (std::int64_t i = 0; i < losses.count(); ++i) sum += double(losses.as<float>()[i]);
  double& out = *total.as<double>();
  out = (over ? scale / *over : scale) * sum + (add ? out : 0.0);
}

}  // namespace headroom::cross_entropy
#endif
