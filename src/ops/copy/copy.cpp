#include "ops/copy/copy.h"

#include "gpu/beside.h"
#include "ops/copy/impl.h"
#include "ops/copy/split.h"

namespace headroom::copy {

void copy(const Tensor& from, const Tensor& to, Context& ctx) {
  check(from.shape == to.shape && from.contiguous() && to.contiguous(), Code::bad_argument,
        "copy: both tensors must be contiguous and of one shape; they have {} and {} elements", from.count(), to.count());
  const auto op = ctx.note("copy", {DType::f32}, {0, double(from.bytes() + to.bytes())}, Work::residual);
  if (ctx.dry() || from.data == to.data) return;
  ctx.on_gpu() ? beside::call<copy_cuda>(from, to, ctx) : copy_cpu(from, to, ctx);
}

void join_heads(const Tensor& k, Context& ctx, Name name) {
  check(ctx.dry(), Code::unsupported, "copy: the parts of latent attention's K are counted, not brought together: no kernel serves them");
  const auto op = ctx.note(name, {k.dtype}, {0, 2 * double(k.bytes())});
}

void split(const Tensor& from, const Tensor& upper, const Tensor& rest, Context& ctx) {
  const auto alike = [&](const Tensor& t, DType type) { return t.shape == from.shape && t.dtype == type && t.contiguous(); };
  check(alike(from, DType::f32) && alike(upper, DType::bf16) && alike(rest, DType::u16), Code::bad_argument,
        "copy: fp32 values are split into bf16 and uint16 of the same shape, all contiguous");
  const auto op = ctx.note("split", {DType::f32}, {0, double(2 * from.bytes())});
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<split_cuda>(from, upper, rest, ctx) : split_cpu(from, upper, rest, ctx);
}

}  // namespace headroom::copy
