// y = x · weight / √(mean(x²) + eps), row by row, and its gradients.
//
// x, y, dy, dx are [rows, width] in one storage type; rows may lie apart. weight, dweight [width] and rstd [rows] are FP32. Sums are
// FP32. Backward reads the rstd that forward wrote. dx may be the residual stream's gradient; backward then adds to it. dx may share
// dy's memory. Where a residual is given, y = residual + the norm, rounded once; y may share its memory. Without a y forward writes rstd alone,
// for an op that makes y itself (ops/quantise); x is contiguous then.
#pragma once
#include "base/tensor.h"
#include "ops/gradient.h"
#include "ops/op.h"

namespace headroom::rmsnorm {

struct Forward {
  Tensor x, weight;
  Tensor y, rstd;  // written; y: none, where only rstd is wanted
  float eps = 1e-5f;
  Tensor residual = {};
};

struct Backward {
  Tensor x, weight, rstd, dy;
  Tensor dx, dweight;  // written or added to
  Gradient into_dx = Gradient::overwrite, into_dweight = Gradient::overwrite;
};

void forward(const Forward&, Context&);
void backward(const Backward&, Context&);  // scratch: FP32 partial sums of dweight, at most 64 rows of width (512 on a GPU)

constexpr std::int64_t widest_on_gpu = 16384;

}  // namespace headroom::rmsnorm
