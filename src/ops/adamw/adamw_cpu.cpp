#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/adamw/adamw_cpu.cpp"
#include "ops/simd_targets.h"  // before anything of Highway

#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/divide.h"
#include "ops/adamw/exact_sum.h"
#include "ops/adamw/impl.h"
#include "ops/adamw/moments.h"
#include "ops/adamw/prepare.h"
#include "ops/copy/split.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::adamw {
namespace HWY_NAMESPACE {

// One code for whatever a gradient is: where it is not one FP32 tensor, a unit of it is made here first. So the bits of what follows do not
// depend on how a gradient came about.
const float* gradient(const Update& t, std::int64_t begin, std::int64_t n, float* room) {
  if (t.parts == 1 && t.grad.dtype == DType::f32) return t.grad.as<float>() + begin;
  with_float(t.grad.dtype, [&]<class G>() {
    const G* g = t.grad.as<G>() + begin;
    for (std::int64_t i = 0; i < n; ++i) room[i] = widen(g[i]);
    for (int p = 1; p < t.parts; ++p)
      for (std::int64_t i = 0; i < n; ++i) room[i] += widen(g[p * t.apart + i]);
  });
  return room;
}

void squares(const Update& t, std::int64_t begin, std::int64_t end, std::int64_t* sum) {
  float room[unit];
  for (std::int64_t i = begin; i < end; i += unit) {  // FP32 lanes within a unit, exact beyond
    const auto n = std::min(unit, end - i);
    const float* g = gradient(t, i, n, room);
    ExactSum::add(sum, double(headroom::HWY_NAMESPACE::sum_over(n, [&](std::int64_t j) { return g[j] * g[j]; })));
  }
}

// step(i, weight) is the weight after the step, for each of n elements in order.
template <class Step>
void step_weights(const Update& t, std::int64_t begin, std::int64_t n, Step&& step) {
  if (t.rest) {
    bf16* __restrict upper = t.copy.as<bf16>() + begin;
    auto* __restrict rest = t.rest.as<std::uint16_t>() + begin;
    for (std::int64_t i = 0; i < n; ++i) {
      const copy::Halves w = copy::split(step(i, copy::join({upper[i], rest[i]})));
      upper[i] = w.upper;
      rest[i] = w.rest;
    }
    return;
  }
  float* __restrict w = t.master.as<float>() + begin;
  for (std::int64_t i = 0; i < n; ++i) w[i] = step(i, w[i]);
  if (!t.copy) return;
  with_float(t.copy.dtype, [&]<class T>() {
    T* __restrict copy = t.copy.as<T>() + begin;
    for (std::int64_t i = 0; i < n; ++i) copy[i] = narrow<T>(w[i]);
  });
}

// One block of moments that are not FP32: they are made FP32 here, and rounded once they have been used.
void step_block(const Update& t, const Numbers& k, const float* __restrict g, std::int64_t begin, std::int64_t n) {
  float m[moments_block], v[moments_block];
  std::uint32_t bits[moments_block];
  const Noise noise(k, t.parameter);
  for (std::int64_t i = 0; i < moments_block; i += Noise::run)
    noise.of_neighbours(t.first + begin + i, reinterpret_cast<std::uint32_t(&)[Noise::run]>(bits[i]));
  const auto step = [&] {
    for (std::int64_t i = 0; i < n; ++i) follow_fused(k, g[i], m[i], v[i]);
    step_weights(t, begin, n, [&](std::int64_t i, float w) { return stepped_fused(k, k.keep, w, m[i], v[i]); });
  };
  if (t.m.dtype == DType::bf16) {
    bf16 *first = t.m.as<bf16>() + begin, *second = t.v.as<bf16>() + begin;
    for (std::int64_t i = 0; i < n; ++i) m[i] = widen(first[i]), v[i] = widen(second[i]);
    step();
    for (std::int64_t i = 0; i < n; ++i) first[i] = half_of(m[i], Noise::first(bits[i])), second[i] = half_of(v[i], Noise::second(bits[i]));
    return;
  }
  auto *first = t.m.as<std::uint8_t>() + begin, *second = t.v.as<std::uint8_t>() + begin;
  float &m_scale = t.m_scale.as<float>()[begin / moments_block], &v_scale = t.v_scale.as<float>()[begin / moments_block];
  for (std::int64_t i = 0; i < n; ++i) m[i] = FirstMoment::value(first[i], m_scale), v[i] = SecondMoment::value(second[i], v_scale);
  step();
  std::uint32_t m_most = 0, v_most = 0;  // as bits, which are ordered as magnitudes are, with NaN above all
  for (std::int64_t i = 0; i < n; ++i)
    m_most = std::max(m_most, bits_of(m[i]) & 0x7fffffff), v_most = std::max(v_most, bits_of(v[i]) & 0x7fffffff);
  m_scale = FirstMoment::Of::scale(float_of(m_most));
  v_scale = SecondMoment::Of::scale(float_of(v_most));
  const float of_m = inverse_of(m_scale), of_v = inverse_of(v_scale);
  for (std::int64_t i = 0; i < n; ++i) {
    first[i] = FirstMoment::code(m[i], of_m, Noise::first(bits[i]));
    second[i] = SecondMoment::code(v[i], of_v, Noise::second(bits[i]));
  }
}

void step_with(const Update& t, const Numbers& k, const float* __restrict g, std::int64_t begin, std::int64_t n) {
  if (t.m.dtype != DType::f32) {
    for (std::int64_t i = 0; i < n; i += moments_block) step_block(t, k, g + i, begin + i, std::min(moments_block, n - i));
    return;
  }
  float* __restrict m = t.m.as<float>() + begin, * __restrict v = t.v.as<float>() + begin;
  step_weights(t, begin, n, [&](std::int64_t i, float w) {
    const float x = g[i] * k.factor;
    m[i] = k.beta1 * m[i] + k.rest1 * x;
    v[i] = k.beta2 * v[i] + k.rest2 * x * x;
    return k.keep * w - k.step * m[i] / (std::sqrt(v[i]) * k.root2 + k.eps);
  });
}

void step_piece(const Update& t, const Numbers& k, std::int64_t begin, std::int64_t end) {
  if (t.parts == 1 && t.grad.dtype == DType::f32) return step_with(t, k, t.grad.as<float>() + begin, begin, end - begin);
  float room[unit];
  for (std::int64_t i = begin; i < end; i += unit) {
    const auto n = std::min(unit, end - i);
    step_with(t, k, gradient(t, i, n, room), i, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom::adamw
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::adamw {

HWY_EXPORT(squares);
HWY_EXPORT(step_piece);

namespace {

std::int64_t pieces_of(const Tensor& t) { return ceil_div(t.count(), piece); }

}  // namespace

void start_cpu(const Tensor& state, double scale) {
  std::fill_n(state.as<double>(), int(state_size), 0.0);
  state.as<double>()[loss_scale] = scale;
}

void set_cpu(const Tensor& state, Field field, double value) { state.as<double>()[field] = value; }

void squares_cpu(std::span<const Update> all, std::int64_t* sum, Context& ctx) {
  std::fill_n(sum, int(ExactSum::limbs), 0);
  for (const Update& t : all)
    ctx.share(pieces_of(t.grad), [&](std::int64_t p, int) {
      std::int64_t own[ExactSum::limbs] = {};
      HWY_DYNAMIC_DISPATCH(squares)(t, p * piece, std::min(t.grad.count(), (p + 1) * piece), own);
      for (int i = 0; i < ExactSum::limbs; ++i) std::atomic_ref(sum[i]).fetch_add(own[i], std::memory_order_relaxed);
    });
}

void begin_cpu(const Tensor& state, const Hyper& h, const Tensor& sums, const Tensor& numbers) {
  const double sum = sums ? ExactSum::value(sums.as<std::int64_t>(), int(sums.shape[0])) : 0;
  std::memset(numbers.data, 0, numbers.bytes());
  *numbers.as<Numbers>() = prepare(state.as<double>(), sum, h);
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
