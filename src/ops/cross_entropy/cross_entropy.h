// loss[row] = log Σ_v exp(logits[row, v]) − logits[row, target[row]], and its gradient, one chunk of rows at a time.
//
// logits is FP32, bf16 or fp16 [rows, vocab], contiguous; all arithmetic is FP32. targets is int32 [rows] in [0, vocab): the caller has checked. A target
// below 0 is none: that row's loss and gradient are 0. losses is FP32 [rows]. dlogits, when asked for, is [rows, vocab] in the type of logits, or in 16 bits
// where they are FP32. It may share logits' memory: each row begins where the row of logits began (gradient_inside).
//
// With a softcap c every logit x stands for c · tanh(x / c), as in Gemma 2; dlogits is then the gradient of x.
#pragma once
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::cross_entropy {

struct Rows {
  Tensor logits, targets;
  Tensor losses;                       // written
  Tensor dlogits;                      // written when it is there: scale · state's loss scale · (softmax − one-hot)
  float scale = 1;                     // 1 over the rows of the whole batch
  const double* loss_scale = nullptr;  // lives beside the optimiser's state, where the device can read it
  float softcap = 0;                   // 0: none
  const double* over = nullptr;        // scale's divisor, if only the device knows it; null: none
};

void run(const Rows&, Context&);

void cap(const Tensor& logits, float softcap, Context&);  // FP32, in place: for callers that read logits and not the loss

// total = scale / over · Σ losses (+ total when `add`), FP64, in a fixed order. over: as of Rows.
void add_up(const Tensor& losses, double scale, bool add, const Tensor& total, Context&, const double* over = nullptr);

Tensor gradient_inside(const Tensor& logits, DType storage);  // the view of dlogits in logits' memory

}  // namespace headroom::cross_entropy
