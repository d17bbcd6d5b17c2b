// The tanh of capped scores, on the device.
#pragma once
#include "ops/attention/sm90/capping.h"
#include "ops/attention/softmax.cuh"

namespace headroom::attention::sm90 {

// Four coefficients are within 3e-08 of the tanh up to 0.5 (fitted; a grid of 2 million floats), 1 - 2 / (e^2x + 1) within 2e-7 anywhere.
__device__ __forceinline__ float tanh_near_0(float x) {
  const float square = x * x;
  return fmaf(fmaf(fmaf(fmaf(0.0170059782f, square, -0.0529243611f), square, 0.133239388f), square, -0.333330512f) * square, x, x);
}
// The tanh of `by` (of Capping) times a product of q and k. Three coefficients, which hold `by`, are within 3e-7 of it up to 0.31.
__device__ __forceinline__ float tanh_of_product_near_0(float product, const Capping& c) {
  const float square = product * product;
  return product * fmaf(fmaf(c.fifth, square, c.third), square, c.first);
}
__device__ __forceinline__ float tanh_by_exp2(float x) { return fmaf(-2, reciprocal_near(exp2_fast(x * 2.88539008f) + 1), 1); }

// Scores ← their tanh. Asked once for all of a warp's, because a branch for each of them would cost more than either way.
template <bool folded = false, int n>
__device__ __forceinline__ void cap(float (&scores)[n], const Capping& capping) {
  float largest = 0;  // a NaN stays one whichever way is taken
#pragma unroll
  for (int i = 0; i < n; ++i) largest = fmaxf(largest, fabsf(scores[i]));
  const bool near = !__any_sync(~0u, largest > (folded ? capping.near_in_backward : capping.near));
  const auto each = [&](auto&& tanh) {
#pragma unroll
    for (float& x : scores) x = tanh(x * capping.by);
  };
  if (capping.exactly) {
    near ? each(tanh_below_5_8) : each(tanh_of);
  } else if constexpr (folded) {
    const auto each_product = [&](auto&& tanh) {
#pragma unroll
      for (float& x : scores) x = tanh(x);
    };
    near ? each_product([&](float x) { return tanh_of_product_near_0(x, capping); })
         : each_product([&](float x) { return fmaf(-2, reciprocal_near(exp2_fast(x * capping.exponent) + 1), 1); });
  } else {
    near ? each(tanh_near_0) : each(tanh_by_exp2);
  }
}

// What a hidden score becomes: its probability is 0, and 1 - tanh² stays finite.
constexpr float hidden_tanh = -1e18f;

}  // namespace headroom::attention::sm90
