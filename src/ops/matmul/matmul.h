// C = alpha · A · B + beta · (add, or C itself), for every matrix of a batch.
//
// A is [batch…, m, k], B [batch…, k, n], C [batch…, m, n]; rank 2 to 4; the leading dimensions are the batch and must be equal. Strides
// are free, also zero in A's and B's batch. Of the last two dimensions, A and B need stride 1 in one, C in the last: so a transposed
// matrix is a view, transposed(w). Each tensor has its own dtype; supports() reads the table of combinations. Sums are FP32 over the
// whole of k; smaller types are widened when read and rounded once when written. With beta = 0, C is not read. The bits depend on the
// shapes alone, not on the number of threads (on a GPU also on alignment and on cuBLASLt's algorithm: gpu/blas.h).
#pragma once
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::matmul {

struct Product {
  Tensor a, b, c;  // c is written
  float alpha = 1, beta = 0;
  Math math = Math::exact;  // tf32: FP32 operands of which a GPU multiplies 10 bits of mantissa; the CPU multiplies them whole
  Tensor add = {};          // what beta multiplies, with c's layout and contiguous; none: what c holds
  Tensor a_scale = {};      // FP32, one element: A's values are its stored ones times this; none: 1
  Tensor b_scale = {};
};

Support supports(const Product&, const Device&);  // whether the device multiplies these dtypes, and if not, why not

Tensor transposed(Tensor);                                                 // the last two dimensions swapped
Tensor part(Tensor, int dimension, std::int64_t begin, std::int64_t end);  // a view of [begin, end) of one dimension

double flops(const Product&);
Cost cost_of(const Product&);

// Checks the shapes, notes the cost, multiplies. Scratch: on a CPU nothing for FP32, one set of tiles per worker for the small
// formats; on a GPU cuBLASLt's workspace.
void multiply(const Product&, Context&, Name name = "matmul");

}  // namespace headroom::matmul
