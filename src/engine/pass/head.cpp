#include "engine/pass/head.h"

#include <algorithm>

#include "base/divide.h"
#include "engine/pass/alike.h"
#include "ops/bias/bias.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/matmul/matmul.h"

namespace headroom::engine {

using matmul::part;
using matmul::transposed;

std::int64_t chunk_of(const Decoder& d, DType compute, DType logits, const Device& device, std::int64_t rows) {
  constexpr std::int64_t cpu_bytes = 1 << 24, least_bytes = 1 << 28, most_bytes = std::int64_t(1) << 31, least_rows = 256;
  std::int64_t bytes = cpu_bytes;
  if (device.kind == DeviceKind::cuda) {
    const double kept =
        double(rows) * double(d.layers.size()) * (8.0 * double(d.width) + 3.0 * double(d.first().ffn.width)) * double(size_of(compute));
    bytes = std::clamp(std::int64_t(std::min(kept / 16, double(most_bytes))), least_bytes, most_bytes);
  }
  const std::int64_t most = std::max(least_rows, bytes / (std::int64_t(size_of(logits)) * d.vocab) / 64 * 64);
  const std::int64_t chunks = ceil_div(rows, most);
  return std::min(rows, round_up(ceil_div(rows, chunks), 64));
}

void Head::loss(const Tensor& x, const ParamStore::Lease& w, const Targets& t, Context& ctx) const {
  run(x, w, t, nullptr, Gradient::overwrite, ctx);
}

void Head::loss_and_gradient(const Tensor& x, const ParamStore::Lease& w, const Targets& t, const Tensor& d, Gradient into_dw,
                             Context& ctx) const {
  run(x, w, t, &d, into_dw, ctx);
}

void Head::run(const Tensor& x, const ParamStore::Lease& w, const Targets& t, const Tensor* d, Gradient into_dw, Context& ctx) const {
  const auto here = ctx.inside("head");
  auto scope = ctx.arena.scope();
  const Weight head = w[WeightRole::head];
  const bool normed = decoder.final_norm;
  const Tensor n = normed ? ctx.arena.make("final_norm.y", precision.dtype, {rows, decoder.width}) : x;
  const Tensor dn = normed || !d ? n : *d;  // the head's gradient takes the place of what it read, where that is the norm's
  const NormStats stats = normed ? norm(rows).make(ctx) : NormStats();
  if (normed) norm(rows).forward(x, w, n, stats, ctx);
  {
    auto chunks = ctx.arena.scope();
    const Tensor logits = ctx.arena.make("logits", logits_type, {chunk, decoder.vocab});
    const std::int64_t alike = alike_of(ceil_div(rows, chunk), ctx);
    for (std::int64_t row = 0; row < rows; row += chunk) {
      const auto end = std::min(rows, row + chunk);
      const std::size_t from = walked(ctx);
      const Tensor part_n = part(n, 0, row, end), part_logits = part(logits, 0, 0, end - row);
      matmul::multiply({part_n, transposed(head.w), part_logits, 1, 0, precision.math}, ctx, "head");
      if (decoder.head_bias) bias::add(part_logits, w[WeightRole::head_bias].w, ctx);
      const Tensor dlogits = d ? cross_entropy::gradient_inside(part_logits, precision.dtype) : Tensor();
      cross_entropy::run(
          {part_logits, part(t.tokens, 0, row, end), part(t.losses, 0, row, end), dlogits,
           float(t.predicted ? t.share : t.share / double(rows * t.parts)), t.loss_scale, float(decoder.logit_softcap), t.predicted},
          ctx);
      if (d) {
        if (decoder.head_bias) bias::backward(dlogits, w[WeightRole::head_bias].dw, row == 0 ? into_dw : Gradient::accumulate, ctx);
        matmul::multiply({transposed(dlogits), part_n, head.dw, 1, row == 0 ? beta_of(into_dw) : 1.0f, precision.math}, ctx, "head.dw",
                         Making::gradients);
        matmul::multiply({dlogits, head.w, part(dn, 0, row, end), 1, 0, precision.math}, ctx, "head.dx", Making::gradients);
      }
      if (row == chunk && alike > 0) {
        repeat_since(from, 1 + alike, ctx);
        row += alike * chunk;
      }
    }
  }
  if (d && normed) norm(rows).backward(x, w, stats, n, *d, Gradient::overwrite, into_dw, ctx);
}

void Head::logits(const Tensor& x, const ParamStore::Lease& w, std::int64_t first, const Tensor& out, Context& ctx) const {
  const auto here = ctx.inside("head");
  auto scope = ctx.arena.scope();
  const auto count = out.shape[0];
  const Tensor n = ctx.arena.make("final_norm.y", precision.dtype, {count, decoder.width});
  norm(count).forward(part(x, 0, first, first + count), w, n, norm(count).make(ctx), ctx);
  matmul::multiply({n, transposed(w[WeightRole::head].w), out, 1, 0, precision.math}, ctx, "head");
  if (decoder.logit_softcap > 0) cross_entropy::cap(out, float(decoder.logit_softcap), ctx);
}

}  // namespace headroom::engine
