// Stands in for the kernels where the library is built without CUDA.
#include "base/error.h"
#include "ops/adamw/impl.h"

namespace headroom::adamw {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "adamw: this build has no CUDA"); }
}  // namespace

void start_cuda(const Tensor&, double, Context&) { refuse(); }
void set_rate_cuda(const Tensor&, double, Context&) { refuse(); }
void prepare_cuda(std::span<const Update>, const Scratch&, const Tensor&, const Hyper&, Context&) { refuse(); }
void advance_cuda(std::span<const Update>, const Tensor&, Context&) { refuse(); }

}  // namespace headroom::adamw
