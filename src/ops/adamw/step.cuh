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

// The bits of √x and a/b where Usual says so. The language's own cost a branch and a call each, and what is between two branches waits for its
// turn: kernels that memory does not limit take these for several weights at once, and share one branch for what is special.
__device__ __forceinline__ float root(float x) {
  const float y = reciprocal_root_near(x + 0x1p-126f), s = x * y;  // the least normal number: √0 is 0, what is usual is not changed
  return fmaf(fmaf(-s, s, x), y * 0.5f, s);
}
__device__ __forceinline__ float quotient(float a, float b) {
  const float near = reciprocal_near(b), r = fmaf(near, fmaf(-b, near, 1), near), q = a * r;
  return fmaf(r, fmaf(-b, q, a), q);
}
// Of several weights: √v, a/b, remainders and intermediates are normal numbers, or v and a are +0, as of an embedding that has had no gradient.
class Usual {
 public:
  __device__ __forceinline__ void add(float v, float a, float b) {
    const std::uint32_t v_bits = __float_as_uint(v), b_bits = __float_as_uint(b);
    const std::uint32_t a_bits = __funnelshift_l(__float_as_uint(a), __float_as_uint(a), 1);  // the sign last
    v_least_ = min(v_least_, v_bits - 1);  // less one, +0 is above all; what is too large makes b so
    a_least_ = min(a_least_, a_bits - 1), a_most_ = max(a_most_, a_bits);
    b_least_ = min(b_least_, b_bits), b_most_ = max(b_most_, b_bits);
  }
  __device__ __forceinline__ bool all() const {
    const auto power = [](int e) { return std::uint32_t(e + 127) << 23; };
    return v_least_ >= power(-101) - 1 && a_least_ >= 2 * power(-96) - 1 && a_most_ <= 2 * power(60) && b_least_ >= power(-30) &&
           b_most_ <= power(30);
  }

 private:
  std::uint32_t v_least_ = ~0u, a_least_ = ~0u, b_least_ = ~0u, a_most_ = 0, b_most_ = 0;
};

}  // namespace headroom::adamw
