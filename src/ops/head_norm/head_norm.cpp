#include "ops/head_norm/head_norm.h"

#include "gpu/beside.h"
#include "ops/head_norm/impl.h"

namespace headroom::head_norm {

Support supports(std::int64_t dim) {
  if (dim % 2 == 0 && dim <= most_dim) return {};
  return Support::no(fmt::format("dim is {}, it must be even and at most {}", dim, most_dim));
}

namespace {
void check_heads(const Tensor& x, const Tensor& y, const Tensor& weight, const Tensor& table, const Tensor& positions, const Context& ctx) {
  check(x.shape.rank == 4 && x.shape == y.shape && x.dtype == y.dtype && x.stride[3] == 1 && y.stride[3] == 1, Code::bad_argument,
        "head_norm: both tensors must be [batch, len, heads, dim] of one type, with stride 1 in dim");
  const auto dim = x.shape[3];
  const Support support = supports(dim);
  check(ctx.dry() || support, Code::bad_argument, "head_norm: {}", support.why);
  check(weight.dtype == DType::f32 && weight.count() == dim && table.dtype == DType::f32 && (positions || table.shape[0] >= x.shape[1]) &&
            table.shape[1] == dim,
        Code::bad_argument, "head_norm: weight must be fp32 [{}] and the table fp32 [{}, {}]", dim, x.shape[1], dim);
  check(!positions || (positions.dtype == DType::i32 && positions.count() == x.shape[0] * x.shape[1] && positions.contiguous()),
        Code::bad_argument, "head_norm: positions must be contiguous int32 [{}, {}]", x.shape[0], x.shape[1]);
}
}  // namespace

void forward(const Forward& t, Context& ctx) {
  check_heads(t.x, t.y, t.weight, t.table, t.positions, ctx);
  const auto op = ctx.note("head_norm", {DType::f32},
                           {7 * double(t.x.count()),
                            double(t.x.bytes() + t.y.bytes()) + 4 * double(t.x.shape[1] * t.x.shape[3]),
                            0,
                            {},
                            {.units_us = 2.5e-6 * double(t.x.count())}},
                           Work::norm);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<forward_cuda>(t, ctx) : forward_cpu(t, ctx);
}

void backward(const Backward& t, Context& ctx) {
  check_heads(t.x, t.d, t.weight, t.table, t.positions, ctx);
  const auto len = t.x.shape[1], dim = t.x.shape[3];
  const Parts parts = parts_of(t.x.shape[0] * len, ctx);
  auto scope = ctx.arena.scope();
  const Tensor sums = ctx.arena.make("head_norm.dweight", DType::f32, {parts.count, dim});
  const auto op = ctx.note("head_norm.backward", {DType::f32},
                           {15 * double(t.x.count()),
                            double(t.x.bytes() + 2 * t.d.bytes()) + 4 * double(len * dim),
                            0,
                            {},
                            {.launches = 2, .units_us = 4.5e-6 * double(t.x.count())}},
                           Work::norm, Making::gradients);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<backward_cuda>(t, parts, sums, ctx) : backward_cpu(t, parts, sums, ctx);
}

}  // namespace headroom::head_norm
