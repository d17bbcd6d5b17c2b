#include "ops/bias/bias.h"

#include "gpu/beside.h"
#include "ops/bias/impl.h"

namespace headroom::bias {

namespace {
void check_rows(const Tensor& rows, const Tensor& bias, const Context& ctx) {
  check(rows.shape.rank == 2 && (rows.contiguous() || ctx.dry()) && bias.dtype == DType::f32 && bias.count() == rows.shape[1],
        Code::bad_argument, "bias: rows [{}, {}] must be contiguous and the bias fp32 [{}], it is {} [{}]", rows.shape[0], rows.shape[1],
        rows.shape[1], name_of(bias.dtype), bias.count());
}
}  // namespace

void add(const Tensor& y, const Tensor& bias, Context& ctx) {
  check_rows(y, bias, ctx);
  const auto op = ctx.note("bias", {DType::f32}, {double(y.count()), double(2 * y.bytes() + bias.bytes())});
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<add_cuda>(y, bias, ctx) : add_cpu(y, bias, ctx);
}

void backward(const Tensor& dy, const Tensor& dbias, Gradient into, Context& ctx) {
  check_rows(dy, dbias, ctx);
  const Parts parts = parts_of(dy.shape[0], ctx);
  auto scope = ctx.arena.scope();
  const Tensor sums = ctx.arena.make("bias.parts", DType::f32, {parts.count, dy.shape[1]});
  const auto op =
      ctx.note("bias.backward", {DType::f32},
               {double(dy.count()), double(dy.bytes() + dbias.bytes()), 0, {}, {.launches = 2, .units_us = 2.2e-6 * double(dy.count())}},
               Work::other, Making::gradients);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<backward_cuda>(dy, dbias, into, parts, sums, ctx) : backward_cpu(dy, dbias, into, parts, sums, ctx);
}

}  // namespace headroom::bias
