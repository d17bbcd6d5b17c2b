// C = alpha · A · B + beta · (add, or C itself), for every matrix of a batch.
//
// A is [batch…, m, k], B [batch…, k, n], C [batch…, m, n]; rank 2 to 4; the leading dimensions are the batch and must be equal. Strides
// are free, also zero in A's and B's batch. Of the last two dimensions, A and B need stride 1 in one, C in the last: so a transposed
// matrix is a view, transposed(w). Each tensor has its own dtype; supports() reads the table of combinations. Sums are FP32 over the
// whole of k unless the product names others; smaller types are widened when read and rounded once when written. With beta = 0, C is not
// read. The bits depend on the shapes alone, not on the number of threads (on a GPU also on alignment and on cuBLASLt's algorithm: gpu/blas.h).
//
// An operand may have scales (base/scaled.h): one per batch, or of other kinds for rank 2. A's lines are its rows, B's its columns:
// B is then stored [n, k] and given as transposed(b), which leaves its scales as they are.
#pragma once
#include "base/scaled.h"
#include "ops/op.h"

namespace headroom::matmul {

enum class Sums : std::uint8_t {
  whole,     // one sum over the whole of k
  two_level  // sums over 128 of k, scaled and added in FP32; needed for scales that differ along k
};
enum class Adder : std::uint8_t {
  fp32,
  hopper  // adds an fp8 product as Hopper's matrix units do (hopper_adder.h); on the CPU, slowly, for studies
};

struct Product {
  Scaled a, b;
  Tensor c;  // written
  float alpha = 1, beta = 0;
  Math math = Math::exact;  // tf32: FP32 operands of which a GPU multiplies 10 bits of mantissa; the CPU multiplies them whole
  Tensor add = {};          // beta multiplies it; contiguous, with c's layout; none: beta multiplies what c holds
  Sums sums = Sums::whole;
  Adder adder = Adder::fp32;
  // Bytes beside one matrix of each operand: other experts' weights; fewer where a format holds a weight in fewer bits. Only counted.
  double more_bytes = 0;
};

Support supports(const Product&, const Device&);  // says whether the device multiplies these dtypes, and why not

Tensor transposed(Tensor);                                                 // the last two dimensions swapped; of nothing: nothing
Scaled transposed(const Scaled&);                                          // swaps the values; scales keep their lines
Tensor part(Tensor, int dimension, std::int64_t begin, std::int64_t end);  // a view of [begin, end) of one dimension

double flops(const Product&);
Cost cost_of(const Product&);

// Checks the shapes, notes the cost, multiplies. Scratch: on a CPU nothing for FP32, one set of tiles per worker for the small
// formats (four with two-level sums, six with Hopper's adder); on a GPU cuBLASLt's workspace.
void multiply(const Product&, Context&, Name name = "matmul", Making = Making::values);

}  // namespace headroom::matmul

namespace headroom {
template <>
inline constexpr auto names_of<matmul::Sums> = names<matmul::Sums>("whole", "two-level");
template <>
inline constexpr auto names_of<matmul::Adder> = names<matmul::Adder>("fp32", "hopper");
}  // namespace headroom
