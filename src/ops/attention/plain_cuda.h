// The kernels between plain_cuda's matrix products, for its host side.
#pragma once
#include <cuda_runtime_api.h>

#include "ops/attention/attention.h"

namespace headroom::attention::plain {

// P ← softmax of each row of S [batch, heads, len_q, len_k] over the keys that it sees, zero elsewhere; and LSE.
void softmax_rows(const Problem&, const Tensor& s, const Tensor& p, const Tensor& lse, cudaStream_t);

// dS ← P ∘ (dP − Δ), Δ = Σ_d dO · O − dLSE. dS may be dP itself where their types agree.
void softmax_rows_backward(const Problem&, const Backward&, const Tensor& dp, const Tensor& ds, cudaStream_t);

// Contiguous FP32 [batch, len, heads, dim] → a tensor of any strides.
void store_rounded(const Tensor& from, const Tensor& to, cudaStream_t);

}  // namespace headroom::attention::plain
