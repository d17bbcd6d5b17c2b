// The AdamW update of a few runs of four weights in registers, interleaved. Gradients and the weights' halves are 16 bits each, two in a word.
#pragma once
#include "ops/adamw/step.cuh"
#include "ops/copy/split_pair.cuh"

namespace headroom::product_update {

// bf16 gradients as FP32. A run of four is in two words.
template <int runs>
__device__ __forceinline__ void widen_runs(const uint2 (&g)[runs], float (&wide)[4 * runs]) {
#pragma unroll
  for (int i = 0; i < 4 * runs; ++i) {
    const std::uint32_t word = i % 4 / 2 ? g[i / 4].y : g[i / 4].x;
    wide[i] = __uint_as_float(i % 2 ? word & 0xffff0000u : word << 16);
  }
}

template <int runs, class After>
__device__ __forceinline__ void step_runs(uint2 (&upper)[runs], uint2 (&rest)[runs], const float (&step)[4 * runs], After&& after) {
  const auto word = [](uint2(&x)[runs], int i) -> std::uint32_t& { return i % 4 / 2 ? x[i / 4].y : x[i / 4].x; };
#pragma unroll
  for (int i = 0; i < 4 * runs; i += 2) {
    std::uint32_t &up = word(upper, i), &low = word(rest, i);
    const float2 w = copy::join_pair(up, low);
    copy::split_pair({after(w.x, step[i]), after(w.y, step[i + 1])}, up, low);
  }
}

// The update with moments in FP32. It has the bits of advance() in ops/adamw/step.cuh: roots and quotients are computed without a branch, and one slow
// branch serves all weights if any number is special (denormal, infinite, NaN).
template <int runs>
__device__ __forceinline__ void advance_whole(const adamw::Numbers& k, const uint2 (&gradients)[runs], uint2 (&upper)[runs],
                                              uint2 (&rest)[runs], float4 (&first)[runs], float4 (&second)[runs]) {
  constexpr int weights = 4 * runs;
  auto &m = reinterpret_cast<float(&)[weights]>(first), &v = reinterpret_cast<float(&)[weights]>(second);
  float g[weights], step[weights];
  widen_runs(gradients, g);
  adamw::Usual usual;
#pragma unroll
  for (int i = 0; i < weights; ++i) {
    adamw::follow(k, g[i], m[i], v[i]);
    const float a = k.step * m[i], b = adamw::divisor(k, adamw::root(v[i]));
    step[i] = adamw::quotient(a, b);
    usual.add(v[i], a, b);
  }
  if (!usual.all()) {
#pragma unroll
    for (int i = 0; i < weights; ++i) step[i] = k.step * m[i] / adamw::divisor(k, sqrtf(v[i]));
  }
  step_runs(upper, rest, step, [&](float w, float by) { return adamw::stepped(k.keep, w, by); });
}

// The update with smaller moments, which the caller has widened to FP32.
template <int runs>
__device__ __forceinline__ adamw::Largest advance_narrow(const adamw::Numbers& k, bool ordinary, const uint2 (&gradients)[runs],
                                                         uint2 (&upper)[runs], uint2 (&rest)[runs], float4 (&first)[runs],
                                                         float4 (&second)[runs]) {
  constexpr int weights = 4 * runs;
  float g[weights], step[weights];
  widen_runs(gradients, g);
  const adamw::Largest largest =
      adamw::step_fused(k, ordinary, g, reinterpret_cast<float(&)[weights]>(first), reinterpret_cast<float(&)[weights]>(second), step);
  step_runs(upper, rest, step, [&](float w, float by) { return fmaf(k.keep, w, -by); });
  return largest;
}

}  // namespace headroom::product_update
