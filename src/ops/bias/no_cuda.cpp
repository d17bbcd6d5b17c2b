// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/bias/impl.h"

namespace headroom::bias {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "bias: this build has no CUDA"); }
}  // namespace

void add_cuda(const Tensor&, const Tensor&, Context&) { refuse(); }
void backward_cuda(const Tensor&, const Tensor&, Gradient, const Parts&, const Tensor&, Context&) { refuse(); }

}  // namespace headroom::bias
