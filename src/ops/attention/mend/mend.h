// Exact bounds of packed documents and of caches that end early. What lies behind an end, or in a neighbour of the same tile, may be anything. Kernels
// hide its scores, but they multiply what it holds by a probability of 0, and 0 · NaN is NaN. So rows of a result that are NaN are computed again, from
// what they see alone: a row that is NaN then, is so by its own inputs, and stays as it was. This is slow, and hardly ever needed.
#pragma once
#include "ops/attention/documents/documents.h"

namespace headroom::attention {

// On the CPU every row of the result is looked at.
void mend_forward(const Problem&, const Forward&, const Lists&, Context&);
void mend_backward(const Problem&, const Backward&, const Lists&, Context&);

// On the context's stream, behind the kernels that have set lists.not_numbers where one of their sums was none: else nothing is looked at.
void mend_forward_on_gpu(const Problem&, const Forward&, const Lists&, Context&);
void mend_backward_on_gpu(const Problem&, const Backward&, const Lists&, Context&);

}  // namespace headroom::attention
