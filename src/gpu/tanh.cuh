// tanh.cuh — the tanh within 3 units in the last place, by 2^x: a third of tanhf's instructions.
#pragma once
#include <cmath>

#include "gpu/mma.cuh"

namespace headroom {

// Near 0 an odd polynomial, so that small arguments lose nothing.
__device__ __forceinline__ float tanh_below_5_8(float x) {  // |x| < 0.625
  const float square = x * x;
  float y = fmaf(-5.70498872745e-3f, square, 2.06390887954e-2f);
  y = fmaf(y, square, -5.37397155531e-2f);
  y = fmaf(y, square, 1.33314422036e-1f);
  y = fmaf(y, square, -3.33332819422e-1f);
  return fmaf(y * square, x, x);
}
__device__ __forceinline__ float tanh_of(float x) {
  const float size = fabsf(x), near = tanh_below_5_8(x);
  const float far = 1 - __fdividef(2, exp2_fast(fminf(size * 2.88539008f, 60.f)) + 1);
  return size < 0.625f ? near : x == x ? copysignf(far, x) : x;
}
__device__ __forceinline__ float slope_of_tanh(float t) { return (1 - t) * (1 + t); }

}  // namespace headroom
