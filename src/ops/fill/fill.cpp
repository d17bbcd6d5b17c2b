#include "ops/fill/fill.h"

#include "gpu/beside.h"
#include "ops/fill/impl.h"

namespace headroom::fill {

namespace {
void check_plain(const Tensor& t) {
  check(t.dtype == DType::f32 && t.contiguous(), Code::bad_argument, "fill: a tensor must be contiguous fp32, this one is {}",
        name_of(t.dtype));
}
}  // namespace

void constant(const Tensor& t, double value, Context& ctx) {
  check_plain(t);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<constant_cuda>(t, value, ctx) : constant_cpu(t, value, ctx);
}

void normal(const Tensor& t, const Random& random, double mean, double std, Context& ctx, std::int64_t first) {
  check_plain(t);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<normal_cuda>(t, random, mean, std, first, ctx) : normal_cpu(t, random, mean, std, first, ctx);
}

}  // namespace headroom::fill
