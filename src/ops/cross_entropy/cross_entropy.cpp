#include "ops/cross_entropy/cross_entropy.h"

#include "gpu/beside.h"
#include "ops/cross_entropy/impl.h"

namespace headroom::cross_entropy {

namespace {
void check_cap(float softcap) { check(softcap >= 0, Code::bad_argument, "cross_entropy: softcap is {}, it must be at least 0", softcap); }
}  // namespace

void run(const Rows& t, Context& ctx) {
  const auto rows = t.logits.shape[0], vocab = t.logits.shape[1];
  const DType type = t.logits.dtype;
  check((type == DType::f32 || type == DType::bf16 || type == DType::f16) && t.logits.shape.rank == 2 && t.logits.contiguous() && vocab > 0,
        Code::bad_argument, "cross_entropy: logits must be contiguous fp32, bf16 or fp16 [rows, vocab]; they are {} [{}, {}]",
        name_of(type), rows, vocab);
  check(t.targets.dtype == DType::i32 && t.targets.count() == rows && t.losses.dtype == DType::f32 && t.losses.count() == rows,
        Code::bad_argument, "cross_entropy: targets must be int32 and losses fp32, {} of each", rows);
  check(!t.dlogits || (t.dlogits.shape == t.logits.shape && t.dlogits.stride[1] == 1), Code::bad_argument,
        "cross_entropy: the gradient must be [{}, {}] with stride 1 in its rows", rows, vocab);
  check(!t.dlogits || t.dlogits.dtype == type || (type == DType::f32 && size_of(t.dlogits.dtype) == 2), Code::unsupported,
        "cross_entropy: the gradient of logits in {} cannot be in {}: it takes their type, or 16 bits where they are fp32", name_of(type),
        name_of(t.dlogits.dtype));
  check_cap(t.softcap);
  const double size = double(t.logits.count());
  const auto op = ctx.note(
      "cross_entropy", {DType::f32},
      {((t.dlogits ? 7 : 5) + (t.softcap > 0 ? 6 : 0)) * size, double(t.logits.bytes()) + (t.dlogits ? double(t.dlogits.bytes()) : 0)},
      Work::loss);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<run_cuda>(t, ctx) : run_cpu(t, ctx);
}

void cap(const Tensor& logits, float softcap, Context& ctx) {
  check(logits.dtype == DType::f32 && logits.contiguous(), Code::bad_argument, "cross_entropy: logits to cap must be contiguous fp32");
  check_cap(softcap);
  const auto op = ctx.note("cross_entropy.cap", {DType::f32}, {6 * double(logits.count()), 2 * double(logits.bytes())}, Work::loss);
  if (ctx.dry() || softcap == 0) return;
  ctx.on_gpu() ? beside::call<cap_cuda>(logits, softcap, ctx) : cap_cpu(logits, softcap, ctx);
}

void add_up(const Tensor& losses, double scale, bool add, const Tensor& total, Context& ctx, const double* over) {
  check(losses.dtype == DType::f32 && total.dtype == DType::f64, Code::bad_argument, "cross_entropy: losses must be fp32, their sum fp64");
  const auto op = ctx.note("cross_entropy.add_up", {DType::f32}, {double(losses.count()), double(losses.bytes())}, Work::loss);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<add_up_cuda>(losses, scale, add, total, over, ctx) : add_up_cpu(losses, scale, add, total, over);
}

Tensor gradient_inside(const Tensor& logits, DType storage) {
  check(size_of(storage) <= size_of(logits.dtype), Code::bad_argument,
        "cross_entropy: a gradient in {} does not fit in the memory of logits in {}", name_of(storage), name_of(logits.dtype));
  Tensor view(logits.data, storage, logits.shape);
  view.stride[0] = logits.shape[1] * std::int64_t(size_of(logits.dtype) / size_of(storage));
  return view;
}

}  // namespace headroom::cross_entropy
