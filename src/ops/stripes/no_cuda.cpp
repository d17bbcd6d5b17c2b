// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/stripes/impl.h"

namespace headroom::stripes {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "stripes: this build has no CUDA"); }
}  // namespace

void pack_cuda(const Tensor&, const Tensor&, Context&) { refuse(); }
void in_order_cuda(const Stripes&, const Tensor&, const Tensor&, Context&) { refuse(); }
void add_by_rank_cuda(const Stripes&, const Tensor&, const Tensor&, Gradient, Context&) { refuse(); }
void add_up_cuda(const Tensor&, int, const Tensor&, Context&) { refuse(); }

}  // namespace headroom::stripes
