#include "engine/pass/inference.h"

#include <algorithm>

#include "engine/halves/block.h"
#include "ops/attention/choose_dry.h"
#include "ops/embedding/embedding.h"

namespace headroom::engine {

std::int64_t cached_positions(const SelfAttention& a, const Generation& g) {
  const std::int64_t seen = a.window > 0 ? std::min(a.window, g.len) : g.len;
  return (seen + g.page - 1) / g.page * g.page;
}

void run_inference(const Decoder& d, const Generation& g, Inference how, Context& ctx) {
  check(ctx.dry(), Code::unsupported, "inference is counted, not run");
  check(g.batch >= 1 && g.len >= 1 && double(g.batch) * double(g.len) < 0x1p31, Code::bad_argument,
        "inference: batch {} times len {} must be 1 to 2^31 tokens", g.batch, g.len);
  const DType type = g.precision.dtype;
  const ParamStore store(d, {.compute = type, .purpose = Purpose::forward, .answering = g.weights}, ctx);
  std::vector<Tensor> caches;
  {
    auto phase = ctx.arena.in_phase(Phase::saved);
    for (int i = 0; i < int(d.layers.size()); ++i) {
      const SelfAttention& a = d.layers[std::size_t(i)].attention;
      caches.push_back(ctx.arena.make({"cache", i}, g.cache.value_or(type), {g.sequences(), cached_positions(a, g), a.cached()}));
    }
  }
  const std::int64_t read = how == Inference::decode ? 1
                            : g.chunk > 0            ? std::min(g.chunk, g.len)
                                                     : g.len,
                     rows = g.batch * read, own = g.sequences() * read;
  auto phase = ctx.arena.in_phase(Phase::forward);
  const Tensor tokens = ctx.arena.make("tokens", DType::i32, {own}), x = ctx.arena.make("x", type, {own, d.width});
  const ParamStore::Lease embedding_of(store, 0);
  embedding::forward(embedding_of[WeightRole::embedding].w, tokens, x, ctx);
  for (int i = 0; i < int(d.layers.size()); ++i) {
    const auto& [a, ffn] = d.layers[std::size_t(i)];
    const bool absorbed = a.latent() && how == Inference::decode;
    const attention::Problem p = (absorbed ? absorbed_problem_of : problem_of)(a, g.sequences(), read, g.len, g.precision);
    const attention::Variant& variant = attention::choose_for_server(p, ctx.device, g.attention);
    const InBlock here{d, {.formats = formats_of(g.precision, usual_scales)}, own, i};
    Attending half{here, a, variant, p, d.positions > 0 ? Tensor() : Tensor(nullptr, DType::f32, {read, a.turned_dim()})};
    half.cache = caches[std::size_t(i)];
    half.absorbed = absorbed;
    DecoderBlock block = block_of(half, ffn);
    const ParamStore::Lease w{store, group_of_layer(i)};
    if (g.by == AttentionBy::sequences) {
      half.rows = rows;
      block.forward_apart(x, w, block_of(half, ffn).ffn, rows, g.gpus, ctx);
      continue;
    }
    block.shared_by = g.gpus;
    block.forward(x, w, {}, x, ctx);
  }
  auto scope = ctx.arena.scope();  // the last position of each sequence
  const ParamStore::Lease head_of(store, last_group(d));
  const Tensor n = ctx.arena.make("final_norm.y", type, {g.batch, d.width}),
               logits = ctx.arena.make("logits", DType::f32, {g.batch, d.vocab});
  matmul::multiply({n, matmul::transposed(head_of[WeightRole::head].w), logits, 1, 0, g.precision.math}, ctx, "head");
}

}  // namespace headroom::engine
