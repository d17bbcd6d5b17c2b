// Replaces the GPU's products in a build without CUDA.
#include "ops/matmul/impl.h"

namespace headroom::matmul {

void multiply_cuda(const Product&, const Tensor&, Context&) { throw Error(Code::unsupported, "matmul: this build has no CUDA"); }

}  // namespace headroom::matmul
