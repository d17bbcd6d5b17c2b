// Replaces the kernel in a build without CUDA.
#include "base/error.h"
#include "ops/gradient_sum/impl.h"

namespace headroom::gradient_sum {

void add_cuda(const Tensor&, int, std::int64_t, const Tensor&, Gradient, Context&) {
  throw Error(Code::unsupported, "gradient_sum: this build has no CUDA");
}

}  // namespace headroom::gradient_sum
