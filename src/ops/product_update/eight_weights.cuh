// The AdamW update of eight weights in registers, interleaved, with the bits of ops/adamw/step.cuh: roots and quotients without a branch, and one
// slow branch for all eight weights if any number is special (denormal, infinite, NaN).
#pragma once
#include "ops/adamw/step.cuh"
#include "ops/copy/split_pair.cuh"

namespace headroom::product_update {

// Four neighbours and four more: gradients and the weights' halves are 16 bits each, two in a word. fused: as moments that are not FP32 have
// it (ops/adamw/moments.h).
template <bool fused = false>
__device__ __forceinline__ void advance_eight(const adamw::Numbers& k, const uint2 (&g)[2], uint2 (&upper)[2], uint2 (&rest)[2],
                                              float4 (&m)[2], float4 (&v)[2]) {
  const auto word = [](auto& pair, int i) -> auto& { return i % 4 / 2 ? pair[i / 4].y : pair[i / 4].x; };
  const auto part = [](float4(&x)[2], int i) -> float& { return (&x[i / 4].x)[i % 4]; };
  float step[8];
  adamw::Usual usual;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float &first = part(m, i), &second = part(v, i);
    adamw::follow(k, __uint_as_float(i % 2 ? word(g, i) & 0xffff0000u : word(g, i) << 16), first, second);
    const float a = k.step * first, b = adamw::divisor(k, adamw::root(second));
    step[i] = adamw::quotient(a, b);
    usual.add(second, a, b);
  }
  if (!usual.all()) {
#pragma unroll
    for (int i = 0; i < 8; ++i) step[i] = k.step * part(m, i) / adamw::divisor(k, sqrtf(part(v, i)));
  }
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    std::uint32_t &up = word(upper, i), &low = word(rest, i);
    const float2 w = copy::join_pair(up, low);
    const auto after = [&](float w, float by) { return fused ? fmaf(k.keep, w, -by) : adamw::stepped(k.keep, w, by); };
    copy::split_pair({after(w.x, step[i]), after(w.y, step[i + 1])}, up, low);
  }
}

}  // namespace headroom::product_update
