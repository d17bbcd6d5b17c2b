// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/cross_entropy/impl.h"

namespace headroom::cross_entropy {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "cross_entropy: this build has no CUDA"); }
}  // namespace

void run_cuda(const Rows&, Context&) { refuse(); }
void cap_cuda(const Tensor&, float, Context&) { refuse(); }
void add_up_cuda(const Tensor&, double, bool, const Tensor&, const double*, Context&) { refuse(); }

}  // namespace headroom::cross_entropy
