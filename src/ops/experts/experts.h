// Experts — which of them a router chooses for each token, rows that go to them, and what comes back. Counted, not computed: dry an op notes
// its cost, wet it says why not. Products with their weights are ops/matmul's, with bytes of several weights.
//
// x, y, dx, dy are [rows, width], the routed tensors [rows · experts of a token, width], all in one storage type; a router's logits [rows, experts]
// FP32, its weights [rows, experts of a token] FP32 and its choice, as numbers of experts, the same in int32.
#pragma once
#include "ops/op.h"

namespace headroom::experts {

Support supports(const Device&);

struct Routing {
  Tensor logits, weights, numbers;
};

void choose(const Routing&, Context&, Name);
void gather(const Tensor& x, const Routing&, const Tensor& routed, Context&, Name);  // a row for each of its experts
// y = add + shared + the sum of a token's routed rows, each times its weight; without add or shared those are 0.
struct Combined {
  Tensor routed, shared, add;
  Tensor y;  // written; may be add
};
void combine(const Combined&, const Routing&, Context&, Name);
void combine_backward(const Tensor& dy, const Tensor& routed, const Routing&, const Tensor& d_routed, const Tensor& dlogits, Context&,
                      Name);
void gather_backward(const Tensor& d_routed, const Routing&, const Tensor& dx, Context&, Name);  // adds to dx

}  // namespace headroom::experts
