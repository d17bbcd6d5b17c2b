// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/swiglu/impl.h"

namespace headroom::swiglu {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "swiglu: this build has no CUDA"); }
}  // namespace

void forward_cuda(const Forward&, Context&) { refuse(); }
void backward_cuda(const Backward&, Context&) { refuse(); }

}  // namespace headroom::swiglu
