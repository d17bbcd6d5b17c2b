// Q, K and V in E4M3 with a scale to a head: how they are made of wider numbers. How they lie: fp8_layout.h.
#pragma once
#include "ops/attention/attention.h"

namespace headroom::attention {

// Numbers into 8 bits: scales and rounding as ops/quantise/encode.h says, the largest taken over a head of a row of the batch.
struct ToFp8 {
  Tensor q, k, v;                    // fp32, bf16 or fp16, in the shapes of a 16-bit problem
  Tensor q8, k8, v8;                 // written, in the shapes of the 8-bit problem
  Tensor q_scale, k_scale, v_scale;  // written
};
void to_fp8(const Problem& in_fp8, const ToFp8&, Context&);  // scratch on a GPU: a 32-bit maximum for each scale

Problem in_16_bits(const Problem& in_fp8);  // the same question of bf16

}  // namespace headroom::attention
