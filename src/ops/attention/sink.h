// A sink is a logit that joins a row's softmax and has no value: it takes its share of the sum. Backward needs nothing new for Q, K and V, because
// LSE has the sink in it; its own gradient is −Σ share · Δ over the rows of its head.
#pragma once
#include <cmath>

#include "ops/attention/attention.h"

namespace headroom::attention {

struct Joined {
  float weight, lse;  // factor of e^(score − top), and natural logarithm of the whole sum
};
// `sum`: of e^(score − top) over the keys seen, 0 where there is none. Either end may be infinite.
HEADROOM_HD Joined join_sink(float top, float sum, float sink) {
  if (std::isinf(sink) && sink > 0) return {0.0f, sink};
  if (sum == 0) return {0.0f, sink};
  const float reference = top > sink ? top : sink, ours = expf(top - reference), total = sum * ours + expf(sink - reference);
  return {ours / total, reference + logf(total)};
}

HEADROOM_HD float share_of_sink(float sink, float lse) {
  if (std::isinf(sink)) return sink > 0 ? 1.0f : 0.0f;
  return expf(sink - lse);
}

// On the CPU, in one order whatever the threads. delta: FP32 [batch, heads, len_q], Σ_d dO·O − dLSE.
void sum_dsink(const Problem&, const Tensor& sink, const Tensor& lse, const Tensor& delta, const Tensor& dsink, Context&);

}  // namespace headroom::attention
