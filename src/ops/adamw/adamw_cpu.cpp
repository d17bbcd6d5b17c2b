#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/adamw/adamw_cpu.cpp"
#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include <algorithm>

#include "ops/adamw/adamw.h"
#include "ops/adamw/numbers.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::adamw {
namespace HWY_NAMESPACE {

double squares(const float* g, std::int64_t n) {
  double sum = 0;
  constexpr std::int64_t run = 1024;  // FP32 lanes within a run, FP64 across runs
  for (std::int64_t i = 0; i < n; i += run)
    sum += double(headroom::HWY_NAMESPACE::sum_over(std::min(run, n - i), [&](std::int64_t j) { return g[i + j] * g[i + j]; }));
  return sum;
}

void step_piece(const Update& t, const Numbers& k, std::int64_t begin, std::int64_t end) {
  const float* __restrict g = t.grad.as<float>();
  float* __restrict w = t.master.as<float>(), * __restrict m = t.m.as<float>(), * __restrict v = t.v.as<float>();
  for (auto i = begin; i < end; ++i) {
    const float x = g[i] * k.factor;
    m[i] = k.beta1 * m[i] + k.rest1 * x;
    v[i] = k.beta2 * v[i] + k.rest2 * x * x;
    w[i] = k.keep * w[i] - k.step * m[i] / (std::sqrt(v[i]) * k.root2 + k.eps);
  }
  if (!t.copy) return;
  with_float(t.copy.dtype, [&]<class T>() {
    T* __restrict copy = t.copy.as<T>();
    for (auto i = begin; i < end; ++i) copy[i] = narrow<T>(w[i]);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom::adamw
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::adamw {

HWY_EXPORT(squares);
HWY_EXPORT(step_piece);

namespace {
constexpr std::int64_t piece = 65536;
std::int64_t pieces_of(const Tensor& t) { return (t.count() + piece - 1) / piece; }
}  // namespace

void start(const Tensor& state, double scale, Context& ctx) {
  if (ctx.dry()) return;
  std::fill_n(state.as<double>(), int(state_size), 0.0);
  state.as<double>()[loss_scale] = scale;
}

void sum_squares(const Tensor& grad, const Tensor& slot, Context& ctx) {
  auto scope = ctx.arena.scope();
  const Tensor sums = ctx.arena.make("norm.parts", DType::f64, {pieces_of(grad)});
  const auto op = ctx.note("norm", {DType::f32}, {2 * double(grad.count()), double(grad.bytes())});
  if (ctx.dry()) return;
  ctx.share(pieces_of(grad), [&](std::int64_t p, int) {
    sums.as<double>()[p] = HWY_DYNAMIC_DISPATCH(squares)(grad.as<float>() + p * piece, std::min(piece, grad.count() - p * piece));
  });
  double sum = 0;
  for (std::int64_t p = 0; p < sums.count(); ++p) sum += sums.as<double>()[p];
  *slot.as<double>() = sum;
}

void prepare(const Tensor& slots, const Tensor& state, const Hyper& h, Context& ctx) {
  const auto op = ctx.note("norm.prepare", {DType::f32}, {double(slots.count()), double(slots.bytes())});
  if (ctx.dry()) return;
  double* s = state.as<double>();
  double sum = 0;
  for (std::int64_t i = 0; i < slots.count(); ++i) sum += slots.as<double>()[i];
  s[grad_norm] = std::sqrt(sum) / s[loss_scale];
  const bool good = std::isfinite(sum);
  s[skipped] = good ? 0 : 1;
  s[factor] = good ? (h.clip > 0 && s[grad_norm] > h.clip ? h.clip / s[grad_norm] : 1.0) / s[loss_scale] : 0.0;
  if (good) s[updates] += 1;
  if (!h.dynamic_scale) return;
  s[good_updates] = good ? s[good_updates] + 1 : 0;
  if (!good) s[loss_scale] = std::max(1.0, s[loss_scale] / 2);
  if (s[good_updates] >= h.growth_interval) s[loss_scale] = std::min(0x1p24, s[loss_scale] * 2), s[good_updates] = 0;
}

void step(const Update& t, const Tensor& state, const Hyper& h, Context& ctx) {
  const auto op =
      ctx.note("adamw", {DType::f32}, {15 * double(t.grad.count()), 28 * double(t.grad.count()) + (t.copy ? double(t.copy.bytes()) : 0)});
  if (ctx.dry()) return;
  const double* s = state.as<double>();
  if (s[skipped] != 0) return;
  const double correct1 = 1 - std::pow(h.beta1, s[updates]), correct2 = 1 - std::pow(h.beta2, s[updates]);
  const Numbers k{float(s[factor]),
                  float(h.beta1),
                  float(h.beta2),
                  float(1 - h.beta1),
                  float(1 - h.beta2),
                  float(h.lr / correct1),
                  float(1 / std::sqrt(correct2)),
                  float(h.eps),
                  float(t.decay ? 1 - h.lr * h.decay : 1.0)};
  ctx.share(pieces_of(t.grad), [&](std::int64_t p, int) {
    HWY_DYNAMIC_DISPATCH(step_piece)(t, k, p * piece, std::min(t.grad.count(), (p + 1) * piece));
  });
}

}  // namespace headroom::adamw
#endif
