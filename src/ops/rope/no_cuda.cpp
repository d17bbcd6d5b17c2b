// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/rope/impl.h"

namespace headroom::rope {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "rope: this build has no CUDA"); }
}  // namespace

void fill_cuda(const Tensor&, double, std::int64_t, Context&) { refuse(); }
void rotate_cuda(const Tensor&, const Tensor&, Turn, const Tensor&, Context&) { refuse(); }

}  // namespace headroom::rope
