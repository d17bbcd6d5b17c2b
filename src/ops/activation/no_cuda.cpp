// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/activation/impl.h"

namespace headroom::activation {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "activation: this build has no CUDA"); }
}  // namespace

void forward_cuda(const Forward&, Context&) { refuse(); }
void backward_cuda(const Backward&, Context&) { refuse(); }

}  // namespace headroom::activation
