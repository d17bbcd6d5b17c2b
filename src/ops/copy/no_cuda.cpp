// Stands in for the kernels where the library is built without CUDA.
#include "base/error.h"
#include "ops/copy/impl.h"

namespace headroom::copy {

void copy_cuda(const Tensor&, const Tensor&, Context&) { throw Error(Code::unsupported, "copy: this build has no CUDA"); }

}  // namespace headroom::copy
