// The kernels between plain_cuda's matrix products, for its host side.
#pragma once
#include <cuda_runtime_api.h>

#include "ops/attention/attention.h"

namespace headroom::attention::plain {

// P ← softmax of each row of S [batch, heads, len_q, len_k] over the keys that it sees, zero elsewhere; and LSE. The band is of the batch's first row.
void softmax_rows(const Problem&, const Band&, const Tensor& s, const Tensor& p, const Forward&, cudaStream_t);

struct Scores {   // [batch, heads, len_q, len_k]
  Tensor dp, ds;  // dS may be dP itself where their types agree
  Tensor s;       // before they were capped; none where they were not
  Tensor delta;   // [batch, heads, len_q], written where it is asked for
};
// dS ← P ∘ (dP − Δ) ∘ the cap's slope, Δ = Σ_d dO · O − dLSE.
void softmax_rows_backward(const Problem&, const Backward&, const Scores&, cudaStream_t);

// Contiguous FP32 [batch, len, heads, dim] → a tensor of any strides.
void store_rounded(const Tensor& from, const Tensor& to, cudaStream_t);

}  // namespace headroom::attention::plain
