// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/layernorm/impl.h"

namespace headroom::layernorm {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "layernorm: this build has no CUDA"); }
}  // namespace

void forward_cuda(const Forward&, Context&) { refuse(); }
void backward_cuda(const Backward&, const Parts&, const Tensor&, Context&) { refuse(); }

}  // namespace headroom::layernorm
