// A product that makes a weight's gradient, dW = dYᵀ X, and the weight's AdamW update as one op: the gradient is rounded to the weight's type, as
// one that stands would be, and is gone. Weights in halves (bf16), nothing clipped, one micro-batch; several weights share a launch.
//
// On a GPU it wants Hopper (sm_90) and weights whose sides 256 divides: supports() says why not. The product's sums are
// over all tokens in order, so the bits depend on the shapes alone; they need not be those of matmul::multiply.
#pragma once
#include <span>

#include "ops/adamw/adamw.h"

namespace headroom::product_update {

struct Item {
  Tensor dy, x;          // bf16 [tokens, out], [tokens, in]
  adamw::Update weight;  // [out, in]; its grad is not read and may be none
};

Support supports(std::int64_t out, std::int64_t in, const Device&);

// numbers: adamw::begin's. Scratch: on a CPU one gradient of the largest weight and what its product takes, on a GPU nothing.
void advance(std::span<const Item>, const Tensor& numbers, Context&);

}  // namespace headroom::product_update
