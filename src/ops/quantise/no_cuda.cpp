// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/quantise/impl.h"

namespace headroom::quantise {

void quantise_cuda(const Request&, const Tensor&, Context&) { throw Error(Code::unsupported, "quantise: this build has no CUDA"); }
void dequantise_cuda(const Scaled&, const Tensor&, Context&) { throw Error(Code::unsupported, "dequantise: this build has no CUDA"); }

}  // namespace headroom::quantise
