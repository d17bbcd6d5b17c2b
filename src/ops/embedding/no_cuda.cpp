// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/embedding/impl.h"

namespace headroom::embedding {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "embedding: this build has no CUDA"); }
}  // namespace

void forward_cuda(const Tensor&, const Tensor&, const Tensor&, float, Context&) { refuse(); }
void add_cuda(const Tensor&, const Tensor&, const Tensor&, Context&) { refuse(); }
void backward_cuda(const Tensor&, const Tensor&, const Tensor&, Gradient, float, const Sorted&, Context&) { refuse(); }

}  // namespace headroom::embedding
