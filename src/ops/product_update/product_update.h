// The product that forms a weight's gradient, dW = dYᵀ X, and the weight's AdamW update as one op. The gradient is rounded to the weight's dtype,
// as a stored one would be, and never stored. Weights in halves (bf16), no clipping, one micro-batch; several weights share a launch.
//
// On a GPU it requires Hopper (sm_90) and weights whose sides are multiples of 8 (tiles are 256 wide, and the last may be cut): supports() says
// why not. A product's sum is over all tokens in order, or that of a few runs of them; which it is follows from the shapes of all weights of the
// launch, and so do the bits, which need not be those of matmul::multiply. In fp8 a GPU takes sides that 256 divides and tokens that 16 divides, all items of a launch of one format, and x in E4M3;
// its sums are two-level ones.
#pragma once
#include <span>

#include "ops/adamw/adamw.h"
#include "ops/matmul/matmul.h"

namespace headroom::product_update {

struct Item {
  Tensor dy, x;                                  // bf16 [tokens, out], [tokens, in]
  adamw::Update weight;                          // [out, in]; its grad is not read and may be none
  Scaled dy_transposed = {}, x_transposed = {};  // instead of dy and x: fp8 [out, tokens], [in, tokens]
  matmul::Sums sums = matmul::Sums::whole;       // of those

  std::int64_t tokens() const { return dy_transposed ? dy_transposed.values.shape[1] : dy.shape[0]; }
};

Support supports(std::int64_t out, std::int64_t in, const Device&);

// Instead of adamw::begin, on whose numbers it may add: what advance takes, and adamw::advance.
Tensor begin(const Tensor& state, const adamw::Hyper&, Context&);

// numbers: begin's. Scratch: on a CPU one gradient of the largest weight and what its product takes, on a GPU at most 17 MB for sums of runs of tokens.
void advance(std::span<const Item>, const Tensor& numbers, Context&);

}  // namespace headroom::product_update
