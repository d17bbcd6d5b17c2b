// to = from: two contiguous tensors of one shape. FP32, bf16 and fp16 convert into each other, rounded to nearest.
#pragma once
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::copy {

void copy(const Tensor& from, const Tensor& to, Context&);

// Both parts of every head of K, which latent attention makes apart, come together. Counted, not computed.
void join_heads(const Tensor& k, Context&, Name);

}  // namespace headroom::copy
