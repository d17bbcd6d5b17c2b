// x[row] = scale · table[token[row]], and the gradient of the table: dtable[token[row]] += scale · dx[row], rows in order, FP32.
// scale: Gemma's √width.
// table is [vocab, width], FP32 or the storage type; tokens int32 [rows], each in [0, vocab): the caller has checked; x [rows, width].
// Backward has the same bits on every device: it only adds, in one order.
#pragma once
#include "base/tensor.h"
#include "ops/gradient.h"
#include "ops/op.h"

namespace headroom::embedding {

void forward(const Tensor& table, const Tensor& tokens, const Tensor& x, Context&, float scale = 1);

// x[row] += table[token[row]]: learned positions, where rows have other positions than their numbers. Its gradient is backward's.
void add(const Tensor& table, const Tensor& tokens, const Tensor& x, Context&);

// dtable is FP32. Scratch on a GPU: the rows sorted by token, int32 [vocab + 1 + 2 rows].
void backward(const Tensor& tokens, const Tensor& dx, const Tensor& dtable, Gradient into_dtable, Context&, float scale = 1);

}  // namespace headroom::embedding
