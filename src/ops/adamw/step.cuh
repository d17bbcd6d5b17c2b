// The arithmetic of one weight, for every kernel that updates weights. It says which products are rounded before they are added, and does not
// leave that to the compiler, so all kernels give the same bits.
#pragma once
#include "gpu/mma.cuh"
#include "ops/adamw/moments.h"

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
__device__ __forceinline__ float root_by(float x, float y) {  // y: near 1/√x
  const float s = x * y;
  return fmaf(fmaf(-s, s, x), y * 0.5f, s);
}
__device__ __forceinline__ float root_of_normal(float x) { return root_by(x, reciprocal_root_near(x)); }
__device__ __forceinline__ float root(float x) {  // the least normal number: √0 is 0, what is usual is not changed
  return root_by(x, reciprocal_root_near(x + 0x1p-126f));
}
__device__ __forceinline__ float reciprocal(float x) {
  const float near = reciprocal_near(x);
  return fmaf(near, fmaf(-x, near, 1), near);
}
__device__ __forceinline__ float quotient(float a, float b) {
  const float near = reciprocal_near(b), r = fmaf(near, fmaf(-b, near, 1), near), q = a * r;
  return fmaf(r, fmaf(-b, q, a), q);
}
// Whether √v, a/b, remainders and intermediates of several weights are normal numbers, or v and a are +0 (an embedding that has had no gradient).
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

// For weights whose moments are not FP32 (moments.h): whether step_fused has the bits of C++'s sqrt and division for all finite moments.
__device__ __forceinline__ bool ordinary(const Numbers& k) { return k.eps >= 0 && k.eps <= 0x1p60f && k.root2 >= 0 && k.root2 <= 0x1p60f; }

// The larger magnitude, NaN above all.
__device__ __forceinline__ float larger(float most, float x) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(most), "f"(fabsf(x)));
  return y;
}

// The steps of several such weights, and their moments after it. Answers the moments' largest magnitudes, as bits, with NaN above all.
struct Largest {
  std::uint32_t m, v;
};
template <int n>
__device__ __forceinline__ Largest step_fused(const Numbers& k, bool ordinary, const float (&g)[n], float (&m)[n], float (&v)[n],
                                              float (&step)[n]) {
  float m_most = 0;
  std::uint32_t v_most = 0;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    follow_fused(k, g[i], m[i], v[i]);
    step[i] = k.step * m[i] * reciprocal(divisor(k, root_of_normal(v[i] + least_square)));
    m_most = larger(m_most, m[i]), v_most = max(v_most, bits_of(v[i]));
  }
  if (!ordinary || v_most >= bits_of(INFINITY)) {
#pragma unroll
    for (int i = 0; i < n; ++i) step[i] = k.step * m[i] * (1 / divisor(k, sqrtf(v[i] + least_square)));
  }
  return {bits_of(m_most), v_most};
}

}  // namespace headroom::adamw
