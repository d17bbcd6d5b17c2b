#include "ops/swiglu/swiglu.h"

#include "gpu/beside.h"
#include "ops/swiglu/impl.h"

namespace headroom::swiglu {

namespace {
void check_pair(const Tensor& packed, const Tensor& half) {
  check(packed.shape.rank == 2 && half.shape.rank == 2 && packed.shape[0] == half.shape[0] && packed.shape[1] == 2 * half.shape[1] &&
            packed.dtype == half.dtype && packed.contiguous() && half.contiguous(),
        Code::bad_argument, "swiglu: gate and up [{}, {}] {} must be contiguous, twice as wide as [{}, {}] {} and of its type",
        packed.shape[0], packed.shape[1], name_of(packed.dtype), half.shape[0], half.shape[1], name_of(half.dtype));
}
}  // namespace

void forward(const Forward& t, Context& ctx) {
  check_pair(t.gate_up, t.act);
  const auto op = ctx.note("swiglu.forward", {DType::f32}, {6 * double(t.act.count()), double(t.gate_up.bytes() + t.act.bytes())});
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<forward_cuda>(t, ctx) : forward_cpu(t, ctx);
}

void backward(const Backward& t, Context& ctx) {
  check_pair(t.gate_up, t.dact);
  check_pair(t.dgate_up, t.dact);
  if (t.act) check_pair(t.gate_up, t.act);
  const auto op = ctx.note("swiglu.backward", {DType::f32},
                           {(t.act ? 13 : 12) * double(t.dact.count()), double(2 * t.gate_up.bytes() + (t.act ? 2 : 1) * t.dact.bytes())},
                           Work::other, Making::gradients);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<backward_cuda>(t, ctx) : backward_cpu(t, ctx);
}

}  // namespace headroom::swiglu
