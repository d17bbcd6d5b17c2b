// SwiGLU of one element in FP32, for every kernel that computes it of tensors of T: the same bits wherever it is inlined.
#pragma once
#include "gpu/mma.cuh"

namespace headroom::swiglu {

// 1 / (1 + e^-x). For 16-bit tensors by two MUFUs: an error below 2^-17 of it, where rounding to them leaves 2^-9 or 2^-12.
template <class T>
__device__ inline float sigmoid(float x) {
  if constexpr (sizeof(T) > 2)
    return __fdividef(1.0f, 1.0f + expf(-x));
  else
    return reciprocal_near(1.0f + exp2_fast(-1.44269504f * x));
}

template <class T>
__device__ inline float product_of(float gate, float up) {
  return gate * sigmoid<T>(gate) * up;
}

struct ElementGradient {
  float gate, up;
};
template <class T>
__device__ inline ElementGradient gradient_of(float gate, float up, float dact) {
  const float s = sigmoid<T>(gate), swish = gate * s;
  return {dact * up * fmaf(swish, 1 - s, s), dact * swish};
}

}  // namespace headroom::swiglu
