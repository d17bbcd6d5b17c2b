// Replaces the kernels in a build without CUDA.
#include "base/error.h"
#include "ops/product_update/impl.h"

namespace headroom::product_update {

void advance_sm90(std::span<const Item>, const Tensor&, Context&) {
  throw Error(Code::unsupported, "product_update: this build has no CUDA");
}
void advance_fp8_sm90(std::span<const Item> all, const Tensor& numbers, Context& ctx) { advance_sm90(all, numbers, ctx); }

}  // namespace headroom::product_update
