// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/head_norm/impl.h"

namespace headroom::head_norm {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "head_norm: this build has no CUDA"); }
}  // namespace

void forward_cuda(const Forward&, Context&) { refuse(); }
void backward_cuda(const Backward&, const Parts&, const Tensor&, Context&) { refuse(); }

}  // namespace headroom::head_norm
