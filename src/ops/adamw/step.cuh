// The arithmetic of one weight, for every kernel that updates weights. It says which products are rounded before they are added, and does not
// leave that to the compiler, so all kernels give the same bits.
#pragma once
#include "gpu/mma.cuh"
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

// The bits of √x and a/b where usual() says so. The language's own cost a branch and a call each, and what is between two branches waits for its
// turn: kernels that memory does not limit take these for several weights at once, and share one branch for what is special.
__device__ __forceinline__ float root(float x) {
  const float y = reciprocal_root_near(x), s = x * y;
  return fmaf(fmaf(-s, s, x), y * 0.5f, s);
}
__device__ __forceinline__ float quotient(float a, float b) {
  const float near = reciprocal_near(b), r = fmaf(near, fmaf(-b, near, 1), near), q = a * r;
  return fmaf(r, fmaf(-b, q, a), q);
}
__device__ __forceinline__ bool usual(float v, float a, float b) {  // √v, a/b, remainders and intermediates are normal numbers
  const auto within = [](std::uint32_t x, std::uint32_t low, std::uint32_t high) { return x - low <= high - low; };
  const auto power = [](int e) { return std::uint32_t(e + 127) << 23; };
  return within(__float_as_uint(v), 0x0d000000u, 0x7f7fffffu) && within(__float_as_uint(a) & 0x7fffffffu, power(-96), power(60)) &&
         within(__float_as_uint(b), power(-30), power(30));
}

}  // namespace headroom::adamw
