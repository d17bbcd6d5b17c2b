// The AdamW update of a few runs of four weights in registers, interleaved, with the bits of ops/adamw/step.cuh: roots and quotients without a branch, and
// one slow branch for all weights if any number is special (denormal, infinite, NaN).
#pragma once
#include "ops/adamw/step.cuh"
#include "ops/copy/split_pair.cuh"

namespace headroom::product_update {

// Gradients and the weights' halves are 16 bits each, two in a word. fused: as moments that are not FP32 have it (ops/adamw/moments.h). Returns
// whether no number was special; then none is NaN.
template <bool fused, int runs>
__device__ __forceinline__ bool advance_runs(const adamw::Numbers& k, const uint2 (&g)[runs], uint2 (&upper)[runs], uint2 (&rest)[runs],
                                             float4 (&m)[runs], float4 (&v)[runs]) {
  const auto word = [](auto& run, int i) -> auto& { return i % 4 / 2 ? run[i / 4].y : run[i / 4].x; };
  const auto part = [](float4(&x)[runs], int i) -> float& { return (&x[i / 4].x)[i % 4]; };
  constexpr int weights = 4 * runs;
  float step[weights];
  adamw::Usual usual;
#pragma unroll
  for (int i = 0; i < weights; ++i) {
    float &first = part(m, i), &second = part(v, i);
    adamw::follow(k, __uint_as_float(i % 2 ? word(g, i) & 0xffff0000u : word(g, i) << 16), first, second);
    const float a = k.step * first, b = adamw::divisor(k, adamw::root(second));
    step[i] = adamw::quotient(a, b);
    usual.add(second, a, b);
  }
  const bool none_special = usual.all();
  if (!none_special) {
#pragma unroll
    for (int i = 0; i < weights; ++i) step[i] = k.step * part(m, i) / adamw::divisor(k, sqrtf(part(v, i)));
  }
#pragma unroll
  for (int i = 0; i < weights; i += 2) {
    std::uint32_t &up = word(upper, i), &low = word(rest, i);
    const float2 w = copy::join_pair(up, low);
    const auto after = [&](float w, float by) { return fused ? fmaf(k.keep, w, -by) : adamw::stepped(k.keep, w, by); };
    copy::split_pair({after(w.x, step[i]), after(w.y, step[i + 1])}, up, low);
  }
  return none_special;
}

}  // namespace headroom::product_update
