// y = (x − mean) · rstd · weight + bias with rstd = 1 / √(variance + eps), row by row, and its gradients.
//
// x, y, dy, dx are [rows, width] in one storage type, contiguous; weight, bias and their gradients [width], mean and rstd [rows] are
// FP32. Sums are FP32. Backward reads the mean and rstd that forward wrote. dx may be the residual stream's gradient; backward then
// adds to it. Without a bias it is counted, not computed: a dry run only.
#pragma once
#include "base/tensor.h"
#include "ops/gradient.h"
#include "ops/op.h"

namespace headroom::layernorm {

struct Forward {
  Tensor x, weight, bias;
  Tensor y, mean, rstd;  // written
  float eps = 1e-5f;
};

struct Backward {
  Tensor x, weight, mean, rstd, dy;
  Tensor dx, dweight, dbias;  // written or added to
  Gradient into_dx = Gradient::overwrite, into_weights = Gradient::overwrite;
};

void forward(const Forward&, Context&);
void backward(const Backward&,
              Context&);  // scratch: FP32 partial sums of both weights' gradients, at most 64 rows of 2 · width (512 on a GPU)

constexpr std::int64_t widest_on_gpu = 16384;

}  // namespace headroom::layernorm
