// Replaces the kernel in a build without CUDA.
#include "base/error.h"
#include "ops/rank_sum/rank_sum.h"

namespace headroom::rank_sum {

void add_on_gpu(const Parts&, const Sum&, void*) { throw Error(Code::unsupported, "rank_sum: this build has no CUDA"); }

}  // namespace headroom::rank_sum
