// Inference of any decoder, run dry: weights, cache, and the tensors of one pass.
#include <algorithm>
#include <cmath>

#include "engine/counted.h"
#include "engine/counted/passes.h"
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
  {
    auto phase = ctx.arena.in_phase(Phase::parameter);
    for (const ParamSpec& s : param_table(d))
      if (s.layer >= 0 && s.multiplied && g.weights.quantises(s.name))
        (void)ctx.arena.make({s.name, s.layer}, DType::u8,
                             {std::int64_t(std::ceil(g.weights.bytes_of(s.shape.count(), s.shape[s.shape.rank - 1], type)))});
      else
        (void)ctx.arena.make({s.name, s.layer}, type, s.shape);
    auto saved = ctx.arena.in_phase(Phase::saved);
    for (int i = 0; i < int(d.layers.size()); ++i) {
      const SelfAttention& a = d.layers[std::size_t(i)].attention;
      (void)ctx.arena.make({"cache", i}, g.cache.value_or(type), {g.batch, cached_positions(a, g), a.cached()});
    }
  }
  const std::int64_t read = g.chunk > 0 ? std::min(g.chunk, g.len) : g.len;
  counted::Passes pass{d,   g.batch,   how == Inference::prefill ? read : 1,   g.len, g.precision, g.attention,
                       ctx, g.weights, g.cache ? double(size_of(*g.cache)) : 0};
  // Every rank adds up what the others made of a half.
  const auto sum = [&](int layer) {
    const double bytes = double(pass.rows() * d.width) * pass.size();
    if (g.gpus > 1) const auto op = ctx.note({"all_reduce", layer}, g.precision, {0, 0, 2 * bytes * double(g.gpus - 1) / double(g.gpus)});
  };
  auto phase = ctx.arena.in_phase(Phase::forward);
  const std::int64_t rows = pass.rows();
  (void)ctx.arena.make("tokens", DType::i32, {rows});
  const Tensor x = ctx.arena.make("x", type, {rows, d.width});
  embedding::forward(counted::view(type, {d.vocab, d.width}), counted::view(DType::i32, {rows}), x, ctx);
  for (int i = 0; i < int(d.layers.size()); ++i) {
    const DecoderLayer& l = d.layers[std::size_t(i)];
    auto scope = ctx.arena.scope();
    (void)ctx.arena.make({"h", i}, type, {rows, d.width});
    {
      auto half = ctx.arena.scope();
      pass.make_items(attention_items(pass, l.attention), Keep::input, false, i);
      attention_forward(pass, l.attention, i, {Keep::input, true, true});
    }
    sum(i);
    auto half = ctx.arena.scope();
    pass.make_items(ffn_items(pass, l.ffn), Keep::input, false, i);
    ffn_forward(pass, l.ffn, i, {Keep::input, true, true});
    sum(i);
  }
  auto scope = ctx.arena.scope();  // the last position of each sequence
  const Tensor n = ctx.arena.make("final_norm.y", type, {g.batch, d.width}),
               logits = ctx.arena.make("logits", DType::f32, {g.batch, d.vocab});
  matmul::multiply({n, matmul::transposed(counted::view(type, {d.vocab, d.width})), logits, 1, 0, g.precision.math}, ctx, "head");
}

}  // namespace headroom::engine
