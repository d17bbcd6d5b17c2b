#include "ops/layernorm/layernorm.h"

#include "gpu/beside.h"
#include "ops/layernorm/impl.h"

namespace headroom::layernorm {

namespace {

constexpr const char* no_bias = "without a bias it is counted, not computed";

void check_rows(const Tensor& x, std::initializer_list<Tensor> alike, std::initializer_list<Tensor> of_columns,
                std::initializer_list<Tensor> of_rows, const Context& ctx) {
  bool same = x.shape.rank == 2 && x.contiguous();
  for (const Tensor& t : alike) same = same && t.shape == x.shape && t.dtype == x.dtype && t.contiguous();
  check(same, Code::bad_argument, "layernorm: x [{}, {}] {}, y and their gradients must be contiguous and alike", x.shape[0], x.shape[1],
        name_of(x.dtype));
  bool fit = true;
  for (const Tensor& t : of_columns) fit = fit && (!t || (t.dtype == DType::f32 && t.count() == x.shape[1]));
  for (const Tensor& t : of_rows) fit = fit && t.dtype == DType::f32 && t.count() == x.shape[0];
  check(fit, Code::bad_argument, "layernorm: weight and bias must be fp32 [{}], mean and rstd fp32 [{}]", x.shape[1], x.shape[0]);
  check(!ctx.on_gpu() || x.shape[1] <= widest_on_gpu, Code::unsupported, "layernorm: rows of {} elements; a GPU serves up to {}",
        x.shape[1], widest_on_gpu);
}

}  // namespace

void forward(const Forward& t, Context& ctx) {
  check_rows(t.x, {t.y}, {t.weight, t.bias}, {t.mean, t.rstd}, ctx);
  const auto op =
      ctx.note("layernorm.forward", {DType::f32},
               {7 * double(t.x.count()), double(t.x.bytes() + t.y.bytes() + 2 * t.weight.bytes() + 2 * t.rstd.bytes())}, Work::norm);
  if (ctx.dry()) return;
  check(bool(t.bias), Code::unsupported, "layernorm: {}", no_bias);
  ctx.on_gpu() ? beside::call<forward_cuda>(t, ctx) : forward_cpu(t, ctx);
}

void backward(const Backward& t, Context& ctx) {
  check_rows(t.x, {t.dy, t.dx}, {t.weight, t.dweight, t.dbias}, {t.mean, t.rstd}, ctx);
  const Parts parts = parts_of(t.x.shape[0], ctx);
  auto scope = ctx.arena.scope();
  const Tensor sums = ctx.arena.make("layernorm.dweight", DType::f32, {parts.count, 2 * t.x.shape[1]});
  const auto op = ctx.note(
      "layernorm.backward", {DType::f32},
      {12 * double(t.x.count()),
       double(2 * t.x.bytes() + t.dx.bytes() * (t.into_dx == Gradient::accumulate ? 2 : 1) + 3 * t.weight.bytes() + 2 * t.rstd.bytes()),
       0,
       {},
       {.launches = 3}},
      Work::norm, Making::gradients);
  if (ctx.dry()) return;
  check(bool(t.dbias), Code::unsupported, "layernorm: {}", no_bias);
  ctx.on_gpu() ? beside::call<backward_cuda>(t, parts, sums, ctx) : backward_cpu(t, parts, sums, ctx);
}

}  // namespace headroom::layernorm
