// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/copy/impl.h"

namespace headroom::copy {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "copy: this build has no CUDA"); }
}  // namespace

void copy_cuda(const Tensor&, const Tensor&, Context&) { refuse(); }
void split_cuda(const Tensor&, const Tensor&, const Tensor&, Context&) { refuse(); }

}  // namespace headroom::copy
