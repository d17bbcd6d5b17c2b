#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/adamw/adamw_cpu.cpp"
#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include <algorithm>

#include "ops/adamw/impl.h"
#include "ops/adamw/prepare.h"
#include "ops/copy/split.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::adamw {
namespace HWY_NAMESPACE {

double squares(const Tensor& grad, std::int64_t begin, std::int64_t end) {
  double sum = 0;
  constexpr std::int64_t run = 1024;  // FP32 lanes within a run, FP64 across runs
  with_float(grad.dtype, [&]<class G>() {
    const G* g = grad.as<G>();
    for (std::int64_t i = begin; i < end; i += run)
      sum += double(headroom::HWY_NAMESPACE::sum_over(std::min(run, end - i), [&](std::int64_t j) {
        const float x = widen(g[i + j]);
        return x * x;
      }));
  });
  return sum;
}

template <class G>
void step_with(const Update& t, const Numbers& k, std::int64_t begin, std::int64_t end) {
  const G* __restrict g = t.grad.as<G>();
  float* __restrict m = t.m.as<float>(), * __restrict v = t.v.as<float>();
  const auto advance = [&](std::int64_t i, float w) {
    const float x = widen(g[i]) * k.factor;
    m[i] = k.beta1 * m[i] + k.rest1 * x;
    v[i] = k.beta2 * v[i] + k.rest2 * x * x;
    return k.keep * w - k.step * m[i] / (std::sqrt(v[i]) * k.root2 + k.eps);
  };
  if (t.rest) {
    bf16* __restrict upper = t.copy.as<bf16>();
    auto* __restrict rest = t.rest.as<std::uint16_t>();
    for (auto i = begin; i < end; ++i) {
      const copy::Halves w = copy::split(advance(i, copy::join({upper[i], rest[i]})));
      upper[i] = w.upper, rest[i] = w.rest;
    }
    return;
  }
  float* __restrict w = t.master.as<float>();
  for (auto i = begin; i < end; ++i) w[i] = advance(i, w[i]);
  if (!t.copy) return;
  with_float(t.copy.dtype, [&]<class T>() {
    T* __restrict copy = t.copy.as<T>();
    for (auto i = begin; i < end; ++i) copy[i] = narrow<T>(w[i]);
  });
}

void step_piece(const Update& t, const Numbers& k, std::int64_t begin, std::int64_t end) {
  with_float(t.grad.dtype, [&]<class G>() { step_with<G>(t, k, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom::adamw
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::adamw {

HWY_EXPORT(squares);
HWY_EXPORT(step_piece);

namespace {

std::int64_t pieces_of(const Tensor& t) { return (t.count() + piece - 1) / piece; }

double sum_squares(const Tensor& grad, const Tensor& sums, Context& ctx) {
  ctx.share(pieces_of(grad), [&](std::int64_t p, int) {
    sums.as<double>()[p] = HWY_DYNAMIC_DISPATCH(squares)(grad, p * piece, std::min(grad.count(), (p + 1) * piece));
  });
  double sum = 0;
  for (std::int64_t p = 0; p < pieces_of(grad); ++p) sum += sums.as<double>()[p];
  return sum;
}

}  // namespace

void start_cpu(const Tensor& state, double scale) {
  std::fill_n(state.as<double>(), int(state_size), 0.0);
  state.as<double>()[loss_scale] = scale;
}

void set_rate_cpu(const Tensor& state, double lr) { state.as<double>()[rate] = lr; }

void prepare_cpu(std::span<const Update> all, const Scratch& scratch, const Tensor& state, const Hyper& h, Context& ctx) {
  double sum = 0;
  for (const Update& t : all) sum += sum_squares(t.grad, scratch.sums, ctx);
  *scratch.numbers.as<Numbers>() = prepare(state.as<double>(), sum, h);
}

void advance_cpu(std::span<const Update> all, const Tensor& numbers, Context& ctx) {
  Numbers k = *numbers.as<Numbers>();
  if (k.go == 0) return;
  const float keep = k.keep;
  for (const Update& t : all) {
    k.keep = t.decay ? keep : 1.0f;
    ctx.share(pieces_of(t.grad), [&](std::int64_t p, int) {
      HWY_DYNAMIC_DISPATCH(step_piece)(t, k, p * piece, std::min(t.grad.count(), (p + 1) * piece));
    });
  }
}

}  // namespace headroom::adamw
#endif
