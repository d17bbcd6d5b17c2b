// flash — no N² memory: tiles with an online softmax forward; backward recomputes P from LSE. This file plans: scratch, and which worker does what.
//
// Forward: one piece per tile of queries of a head, those with the most keys first.
// Backward: Δ row by row; then one piece per chunk of keys of a key head, which walks its strips in order and adds to dQ in order; then
// dQ of the chunks is added up, in order. How many chunks there are depends on the problem alone, so the bits do too.
#include "ops/attention/cpu/flash.h"

#include <algorithm>

#include "base/convert.h"
#include "base/divide.h"
#include "ops/attention/documents/documents.h"
#include "ops/attention/impl.h"
#include "ops/attention/mend/mend.h"
#include "ops/attention/refusals.h"
#include "ops/attention/row.h"
#include "ops/attention/sink.h"

namespace headroom::attention {

namespace {

using namespace flash_cpu;

constexpr std::int64_t pieces_wanted = 16;  // for backward; heads give them where there are enough, chunks of keys otherwise

struct Chunks {
  std::int64_t count, keys;  // keys of one, a multiple of a strip
};
Chunks chunks_of(const Problem& p) {
  const auto strips = ceil_div(p.len_k, keys_per_strip), heads = std::max<std::int64_t>(p.batch * p.kv_heads, 1);
  const auto wanted = std::clamp<std::int64_t>(ceil_div(pieces_wanted, heads), 1, std::max<std::int64_t>(strips, 1));
  const auto each = std::max<std::int64_t>(ceil_div(strips, wanted), 1);
  return {std::max<std::int64_t>(ceil_div(strips, each), 1), each * keys_per_strip};
}

struct QueryRow {
  std::int64_t b, head, row;
};
QueryRow query_row(const Problem& p, std::int64_t at) {  // at: in [batch, heads, len_q]
  return {at / (p.heads * p.len_q), at / p.len_q % p.heads, at % p.len_q};
}
constexpr std::int64_t rows_per_piece = 64;
std::int64_t row_pieces(const Problem& p) { return ceil_div(p.lse_shape().count(), rows_per_piece); }

}  // namespace

Support flash_supports(const Problem& p, const Device& device, Pass pass) {
  Problem unpaged = p;
  unpaged.page = 0;
  if (Support s = plain_supports(unpaged, device, pass); !s) return s;
  return pages_are_of_a_cache({p, device, pass});
}

void flash_forward(const Problem& p, const Forward& t, Context& ctx) {
  const auto floats = forward_scratch(p);
  const Lists lists = make_lists(p, ctx);
  const Tensor scratch = ctx.arena.make("attention.tiles", DType::f32, {ctx.workers(), floats});
  const auto op = ctx.note("attention.flash.forward", p.precision, forward_cost(p), Work::attention);
  if (ctx.dry()) return;
  list_documents(p, t.with, lists, ctx);
  const auto dropping = dropping_of(p, t.with);
  const Alibi alibi = alibi_of(p, t.with);
  const auto tiles = ceil_div(p.len_q, queries_per_tile), heads = p.batch * p.heads;
  ctx.share(tiles * heads, [&](std::int64_t piece, int worker) {
    const auto tile = tiles - 1 - piece / heads, head = piece % heads, b = head / p.heads;
    const Band band = band_of(p, lists, b);
    forward_tile({.problem = p,
                  .tensors = t,
                  .band = band,
                  .dropping = dropping ? &*dropping : nullptr,
                  .alibi = alibi,
                  .b = b,
                  .head = head % p.heads,
                  .row = tile * queries_per_tile,
                  .scratch = scratch.as<float>() + worker * floats});
  });
  mend_forward(p, t, lists, ctx);
}

void flash_backward(const Problem& p, const Backward& t, Context& ctx) {
  const auto floats = backward_scratch(p), dim = p.head_dim;
  const Chunks chunks = chunks_of(p);
  // With one chunk, FP32 and whole vectors, dQ is added up where it will stay.
  const bool in_place = chunks.count == 1 && p.precision.dtype == DType::f32 && dim % 16 == 0;
  const Lists lists = make_lists(p, ctx);
  const Tensor delta = ctx.arena.make("attention.delta", DType::f32, p.lse_shape());
  const Tensor parts =
      in_place ? t.dq : ctx.arena.make("attention.dq", DType::f32, {chunks.count, p.batch * p.len_q, p.heads, padded(dim)});
  const Tensor scratch = ctx.arena.make("attention.tiles", DType::f32, {ctx.workers(), floats});
  const auto op = ctx.note("attention.flash.backward", p.precision, backward_cost(p), Work::attention, Making::gradients);
  if (ctx.dry()) return;
  list_documents(p, t.with, lists, ctx);
  const auto dropping = dropping_of(p, t.with);
  const Alibi alibi = alibi_of(p, t.with);

  const auto part = [&](std::int64_t chunk) {  // dQ of one chunk, [batch, len_q, heads, padded dim]
    return in_place ? t.dq : Tensor(parts.as<float>() + chunk * parts.stride[0], DType::f32, {p.batch, p.len_q, p.heads, padded(dim)});
  };
  // Rows of a chunk's dQ that none of its keys is seen by are neither written here nor read below: documents and windows leave most out.
  const auto adds_to = [&](std::int64_t chunk, const Band& band, std::int64_t row) {
    const std::int64_t first = chunk * chunks.keys, last = std::min(first + chunks.keys, p.len_k) - 1;
    return last >= first && row >= band.first_row(first) && row < band.last_row(last);
  };
  with_float(p.precision.dtype, [&]<class T>() {
    ctx.share(row_pieces(p), [&](std::int64_t piece, int) {
      for (auto at = piece * rows_per_piece; at < std::min((piece + 1) * rows_per_piece, p.lse_shape().count()); ++at) {
        const auto [b, head, row] = query_row(p, at);
        const Band band = band_of(p, lists, b);
        const T *o = row_of<T>(t.o, b, row, head), *d_o = row_of<T>(t.d_o, b, row, head);
        float sum = t.dlse ? -t.dlse.as<float>()[at] : 0.0f;
        for (std::int64_t d = 0; d < p.value_dim(); ++d) sum += widen(d_o[d]) * widen(o[d]);
        delta.as<float>()[at] = sum;
        for (std::int64_t c = 0; c < chunks.count; ++c)
          if (in_place || adds_to(c, band, row)) std::fill_n(row_of<float>(part(c), b, row, head), in_place ? dim : padded(dim), 0.0f);
      }
    });
  });
  if (t.dsink) sum_dsink(p, t.with.sink, t.lse, delta, t.dsink, ctx);
  const auto heads = p.batch * p.kv_heads;
  ctx.share(p.len_k == 0 ? 0 : chunks.count * heads, [&](std::int64_t piece, int worker) {
    const auto chunk = piece / heads, head = piece % heads;
    const Tensor dq = part(chunk);
    const Band band = band_of(p, lists, head / p.kv_heads);
    for (auto key = chunk * chunks.keys; key < std::min((chunk + 1) * chunks.keys, p.len_k); key += keys_per_strip)
      backward_strip({.problem = p,
                      .tensors = t,
                      .band = band,
                      .dropping = dropping ? &*dropping : nullptr,
                      .alibi = alibi,
                      .b = head / p.kv_heads,
                      .kv_head = head % p.kv_heads,
                      .key = key,
                      .delta = delta.as<float>(),
                      .dq = dq,
                      .scratch = scratch.as<float>() + worker * floats});
  });
  if (in_place) return mend_backward(p, t, lists, ctx);
  with_float(p.precision.dtype, [&]<class T>() {
    ctx.share(row_pieces(p), [&](std::int64_t piece, int) {
      for (auto at = piece * rows_per_piece; at < std::min((piece + 1) * rows_per_piece, p.lse_shape().count()); ++at) {
        const auto [b, head, row] = query_row(p, at);
        const Band band = band_of(p, lists, b);
        float* sum = nullptr;  // the chunks' so far, in the first one's part
        for (std::int64_t c = 0; c < chunks.count; ++c) {
          if (!adds_to(c, band, row)) continue;
          float* const more = row_of<float>(part(c), b, row, head);
          if (sum)
            for (std::int64_t d = 0; d < dim; ++d) sum[d] += more[d];
          else
            sum = more;
        }
        T* to = row_of<T>(t.dq, b, row, head);
        for (std::int64_t d = 0; d < dim; ++d) to[d] = narrow<T>(sum ? sum[d] : 0.0f);
      }
    });
  });
  mend_backward(p, t, lists, ctx);
}

}  // namespace headroom::attention
