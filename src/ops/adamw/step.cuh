// The arithmetic of one weight, for every kernel that updates weights. It says which products are rounded before they are added, and does not
// leave that to the compiler, so all kernels give the same bits.
#pragma once
#include "ops/adamw/impl.h"

namespace headroom::adamw {

__device__ __forceinline__ void follow(const Numbers& k, float g, float& m, float& v) {  // the moments
  const float x = g * k.factor;
  m = fmaf(k.beta1, m, k.rest1 * x);
  v = fmaf(k.beta2, v, k.rest2 * x * x);
}

// The divisor of a first moment, and the weight after the step.
__device__ __forceinline__ float divisor(const Numbers& k, float root) { return fmaf(root, k.root2, k.eps); }
__device__ __forceinline__ float stepped(float keep, float w, float step) { return __fsub_rn(__fmul_rn(keep, w), step); }

__device__ __forceinline__ void advance(const Numbers& k, float keep, float g, float& w, float& m, float& v) {
  follow(k, g, m, v);
  w = stepped(keep, w, k.step * m / divisor(k, sqrtf(v)));
}

}  // namespace headroom::adamw
