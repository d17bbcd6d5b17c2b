#include "ops/copy/copy.h"

#include "ops/copy/impl.h"

namespace headroom::copy {

void copy(const Tensor& from, const Tensor& to, Context& ctx) {
  check(from.shape == to.shape && from.contiguous() && to.contiguous(), Code::bad_argument,
        "copy: both tensors must be contiguous and of one shape; they have {} and {} elements", from.count(), to.count());
  const auto op = ctx.note("copy", {DType::f32}, {0, double(from.bytes() + to.bytes())});
  if (ctx.dry() || from.data == to.data) return;
  ctx.on_gpu() ? copy_cuda(from, to, ctx) : copy_cpu(from, to, ctx);
}

}  // namespace headroom::copy
