#include "ops/rmsnorm/rmsnorm.h"

#include "gpu/beside.h"
#include "ops/rmsnorm/impl.h"

namespace headroom::rmsnorm {

namespace {

void check_rows(const Tensor& x, std::initializer_list<Tensor> alike, const Tensor& weight, const Tensor& rstd, const Context& ctx) {
  const auto laid_out = [](const Tensor& t) { return t.contiguous() || t.stride[1] == 1; };
  bool same = x.shape.rank == 2 && laid_out(x);
  for (const Tensor& t : alike) same = same && t.shape == x.shape && t.dtype == x.dtype && laid_out(t);
  check(same, Code::bad_argument, "rmsnorm: x [{}, {}] {}, y and their gradients must be alike, with stride 1 in their rows", x.shape[0],
        x.shape[1], name_of(x.dtype));
  check(weight.dtype == DType::f32 && weight.count() == x.shape[1] && rstd.dtype == DType::f32 && rstd.count() == x.shape[0],
        Code::bad_argument, "rmsnorm: weight must be fp32 [{}] and rstd fp32 [{}]", x.shape[1], x.shape[0]);
  check(!ctx.on_gpu() || x.shape[1] <= widest_on_gpu, Code::unsupported, "rmsnorm: rows of {} elements; a GPU serves up to {}", x.shape[1],
        widest_on_gpu);
}

}  // namespace

void forward(const Forward& t, Context& ctx) {
  const Tensor& y = t.y ? t.y : t.x;
  check_rows(t.x, {y, t.residual ? t.residual : y}, t.weight, t.rstd, ctx);
  check(t.y || (t.x.contiguous() && !t.residual), Code::bad_argument, "rmsnorm: without y, x must be contiguous and nothing is added");
  const double added = t.residual ? double(t.x.count()) : 0;
  const auto op = ctx.note(t.y ? "rmsnorm.forward" : "rmsnorm.rstd", {DType::f32},
                           {(t.y ? 4 : 2) * double(t.x.count()) + added,
                            double(t.x.bytes() + t.y.bytes() + t.weight.bytes() + t.rstd.bytes()) + added * double(size_of(t.x.dtype))},
                           Work::norm);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<forward_cuda>(t, ctx) : forward_cpu(t, ctx);
}

void backward(const Backward& t, Context& ctx) {
  check_rows(t.x, {t.dy, t.dx}, t.weight, t.rstd, ctx);
  // Two or four parts a multiprocessor: fewer are latency-bound; more write too many partial sums (measured on an H200, 2026-11-21).
  const Parts parts = parts_of(t.x.shape[0], ctx, t.x.shape[1] <= 2048 ? 512 : 256);
  auto scope = ctx.arena.scope();
  const Tensor sums = ctx.arena.make("rmsnorm.dweight", DType::f32, {parts.count, t.x.shape[1]});
  const auto op = ctx.note(
      "rmsnorm.backward", {DType::f32},
      {9 * double(t.x.count()),
       double(2 * t.x.bytes() + t.dx.bytes() * (t.into_dx == Gradient::accumulate ? 2 : 1) + 2 * t.weight.bytes() + t.rstd.bytes()),
       0,
       {},
       {.launches = 2}},
      Work::norm, Making::gradients);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<backward_cuda>(t, parts, sums, ctx) : backward_cpu(t, parts, sums, ctx);
}

}  // namespace headroom::rmsnorm
