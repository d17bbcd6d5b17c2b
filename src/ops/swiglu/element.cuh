// SwiGLU of one element in FP32, for every kernel that computes it: the same bits wherever it is inlined.
#pragma once

namespace headroom::swiglu {

__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

__device__ inline float product_of(float gate, float up) { return gate * sigmoid(gate) * up; }

struct ElementGradient {
  float gate, up;
};
__device__ inline ElementGradient gradient_of(float gate, float up, float dact) {
  const float s = sigmoid(gate);
  return {dact * up * s * (1 + gate * (1 - s)), dact * gate * s};
}

}  // namespace headroom::swiglu
