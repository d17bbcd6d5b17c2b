// y[row, :] += bias, and the bias's gradient: the sum of dy's rows.
//
// y and dy are [rows, width] in one storage type, contiguous (a dry run counts rows that lie apart); bias and dbias [width] FP32. Sums are FP32, split by shape alone.
#pragma once
#include "base/tensor.h"
#include "ops/gradient.h"
#include "ops/op.h"

namespace headroom::bias {

void add(const Tensor& y, const Tensor& bias, Context&);
void backward(const Tensor& dy, const Tensor& dbias, Gradient into_dbias, Context&);  // scratch: at most 64 FP32 rows of width

}  // namespace headroom::bias
