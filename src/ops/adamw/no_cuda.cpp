// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/adamw/impl.h"

namespace headroom::adamw {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "adamw: this build has no CUDA"); }
}  // namespace

void start_cuda(const Tensor&, double, Context&) { refuse(); }
void set_cuda(const Tensor&, Field, double, Context&) { refuse(); }
void squares_cuda(std::span<const Update>, std::int64_t*, Context&) { refuse(); }
void begin_cuda(const Tensor&, const Hyper&, const Tensor&, const Tensor&, Context&) { refuse(); }
void advance_cuda(std::span<const Update>, const Tensor&, Context&) { refuse(); }

}  // namespace headroom::adamw
