#include "ops/activation/activation.h"

#include "gpu/beside.h"
#include "ops/activation/impl.h"

namespace headroom::activation {

namespace {
void check_pair(const Tensor& in, const Tensor& act) {
  check(in.shape.rank == 2 && act.shape.rank == 2 && in.shape[0] == act.shape[0] && in.dtype == act.dtype && in.contiguous() &&
            act.contiguous() && (in.shape[1] == act.shape[1] || gated(in, act)),
        Code::bad_argument, "activation: the input [{}, {}] {} must be contiguous, as wide as [{}, {}] {} or twice, and of its type",
        in.shape[0], in.shape[1], name_of(in.dtype), act.shape[0], act.shape[1], name_of(act.dtype));
}
}  // namespace

void forward(const Forward& t, Context& ctx) {
  check_pair(t.in, t.act);
  const auto op = ctx.note("activation.forward", {DType::f32}, {8 * double(t.act.count()), double(t.in.bytes() + t.act.bytes())});
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<forward_cuda>(t, ctx) : forward_cpu(t, ctx);
}

void backward(const Backward& t, Context& ctx) {
  check_pair(t.in, t.dact);
  check_pair(t.din, t.dact);
  check(t.din.shape == t.in.shape, Code::bad_argument, "activation: the input's gradient must have the input's shape");
  if (t.act) check_pair(t.in, t.act);
  const auto op =
      ctx.note("activation.backward", {DType::f32},
               {16 * double(t.dact.count()), double(2 * t.in.bytes() + (t.act ? 2 : 1) * t.dact.bytes())}, Work::other, Making::gradients);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<backward_cuda>(t, ctx) : backward_cpu(t, ctx);
}

}  // namespace headroom::activation
