#include "ops/gradient_sum/gradient_sum.h"

#include "gpu/beside.h"
#include "ops/gradient_sum/impl.h"

namespace headroom::gradient_sum {

void add(const Tensor& first, int parts, std::int64_t apart, const Tensor& sum, Gradient into, Context& ctx) {
  check(parts >= 1 && first.count() == sum.count() && sum.dtype == DType::f32 && (first.dtype == DType::f32 || size_of(first.dtype) == 2) &&
            first.contiguous() && sum.contiguous(),
        Code::bad_argument, "gradient_sum: {} parts of {} elements of {} do not add up to {} of {}; a sum is fp32, all contiguous", parts,
        first.count(), name_of(first.dtype), sum.count(), name_of(sum.dtype));
  const double n = double(sum.count()), kept = into == Gradient::accumulate ? 1 : 0;
  const auto op = ctx.note("gradient.sum", {DType::f32}, {(parts - 1 + kept) * n, parts * double(first.bytes()) + (1 + kept) * 4 * n});
  if (ctx.dry() || sum.count() == 0) return;
  ctx.on_gpu() ? beside::call<add_cuda>(first, parts, apart, sum, into, ctx) : add_cpu(first, parts, apart, sum, into, ctx);
}

}  // namespace headroom::gradient_sum
