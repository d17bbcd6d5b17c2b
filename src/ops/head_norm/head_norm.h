// Normalises, weights and rotates every head of every position: y = rotate(x / √(mean(x²) + eps) · weight), as Qwen3 does with q and k
// between their product and attention. The rotation is ops/rope's. Backward computes the norm again from x, so nothing is saved.
//
// x, y, d are [batch, len, heads, dim] in one storage type, any strides but 1 in the last dimension, dim even and at most 256;
// weight and dweight [dim] FP32; table as rope::fill wrote it, [≥ len, dim]. positions: where a row's
// position is not its number in its sequence, as of rope::rotate. Sums are FP32.
#pragma once
#include "base/tensor.h"
#include "ops/gradient.h"
#include "ops/op.h"

namespace headroom::head_norm {

struct Forward {
  Tensor x, weight, table;
  Tensor y;  // written
  float eps = 1e-6f;
  Tensor positions = {};
};

struct Backward {
  Tensor x, weight, table;
  Tensor d;  // in: the gradient of y; out: the gradient of x
  Tensor dweight;
  Gradient into_dweight = Gradient::overwrite;
  float eps = 1e-6f;
  Tensor positions = {};
};

Support supports(std::int64_t dim);  // a dry run counts what it refuses
void forward(const Forward&, Context&);
void backward(const Backward&, Context&);  // scratch: FP32 partial sums of dweight, at most 64 rows of dim

}  // namespace headroom::head_norm
