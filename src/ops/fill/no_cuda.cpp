// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/fill/impl.h"

namespace headroom::fill {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "fill: this build has no CUDA"); }
}  // namespace

void constant_cuda(const Tensor&, double, Context&) { refuse(); }
void normal_cuda(const Tensor&, const Random&, double, double, std::int64_t, Context&) { refuse(); }

}  // namespace headroom::fill
