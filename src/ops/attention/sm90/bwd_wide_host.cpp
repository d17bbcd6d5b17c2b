// Hopper's attention backward past head dim 128, host side. dK and dV's kernel keeps dS in the workspace and dQ = dS K is a product of its own: five products
// in all. Where nothing is kept (bwd_kept.h), dQ's kernel forms dS again.
// Workspace: 8 bytes per row and head, and the dS of a range; where that holds not all query heads of a kv head, also the FP32 sums between two ranges.
#include "ops/attention/mend/mend.h"
#include "ops/attention/sm90/bwd_host.h"

namespace headroom::attention::sm90::backward {

namespace {

KeptDocuments make_kept_documents(const Problem& p, const KeptDocumentRanges& ranges, std::int64_t most_tiles, Context& ctx) {
  const std::int64_t row_tiles = ceil_div(p.len_q, kept_side);
  Arena& arena = ctx.arena;
  return {.tiles = static_cast<KeptTile*>(arena.make("attention.kept_tiles", DType::i32, {p.batch, most_tiles, 4}).data),
          .tile_at = arena.make("attention.kept_tile_of_key", DType::i32, {p.batch, p.len_k}).as<std::int32_t>(),
          .tiles_of_rows = static_cast<Run*>(arena.make("attention.kept_tiles_of_rows", DType::i32, {p.batch, row_tiles, 2}).data),
          .blocks = arena.make("attention.kept_blocks", DType::i32, {p.batch}).as<std::int32_t>(),
          .before = static_cast<std::int64_t*>(arena.make("attention.kept_before", DType::i32, {p.batch, 2}).data),
          .ranges = static_cast<KeptRange*>(arena.make("attention.kept_ranges", DType::i32, {ranges.count + 1, 4}).data),
          .capacity = ranges.capacity,
          .most_blocks = std::int32_t(ranges.most_blocks),
          .batch = std::int32_t(p.batch),
          .heads = std::int32_t(p.heads),
          .most = std::int32_t(most_tiles),
          .row_tiles = std::int32_t(row_tiles),
          .len_k = std::int32_t(p.len_k),
          .count = std::int32_t(ranges.count),
          .range = 0};
}

}  // namespace

template <class Tiles, Reach reach, bool cap>
void backward_wide(const Problem& p, const Backward& t, Context& ctx) {
  using Main = std::conditional_t<reach == Reach::run && !cap, Tiles, Asking<Tiles, reach, cap>>;
  const std::int64_t padded = round_up(p.len_q, Tiles::dq_rows);
  static_assert(Tiles::keys == kept_side && Tiles::rows == kept_side && Tiles::dq_keys == kept_side && Tiles::dq_rows == 2 * kept_side);
  static_assert(unfinished_tile_bytes == 2 * Tiles::keys * Tiles::dim * sizeof(float));
  const KeptRanges ranges = kept_ranges(p, ctx.device.units);
  const KeptDocumentRanges of_documents = kept_document_ranges(p);
  const std::int64_t counters = (of_documents.count > 0) + 2 * std::max({std::int64_t(1), ranges.count, of_documents.count});
  const Statistics s = make_statistics(p, padded, counters, ctx);
  const Lists lists = make_lists(p, ctx);
  const auto listed = [&](std::int64_t size, std::int64_t step, bool of_keys) {
    return reach == Reach::listed ? make_tiles(p, ctx, size, step, 2, of_keys) : DocumentTiles{};
  };
  const DocumentTiles of_keys = listed(Tiles::keys, Tiles::rows, true),
                      of_rows = of_documents.count > 0 ? DocumentTiles{} : listed(Tiles::dq_rows, Tiles::dq_keys, false);
  Kept kept = ranges.shape;
  if (ranges.count > 0) {
    kept.ds = ctx.arena.make("attention.ds", DType::u8, {ranges.pairs, ranges.heads, kept.blocks_of_head, kept_block_bytes}).data;
    if (ranges.heads < p.group())
      kept.unfinished = ctx.arena.make("attention.unfinished", DType::f32, {ranges.pairs, kept.key_tiles, 2, Tiles::keys * Tiles::dim})
                            .template as<float>();
  }
  KeptDocuments documents{};
  if (of_documents.count > 0) {
    documents = make_kept_documents(p, of_documents, of_keys.most, ctx);
    kept.ds = ctx.arena.make("attention.ds", DType::u8, {of_documents.capacity, kept_block_bytes}).data;
    if (p.group() > 1 && of_documents.count > 1)
      kept.unfinished =
          ctx.arena.make("attention.unfinished", DType::f32, {2, of_keys.most, 2, Tiles::keys * Tiles::dim}).template as<float>();
  }
  if (ctx.dry()) return;
  list_documents_on_gpu(p, t.with, lists, ctx, nullptr, of_keys, of_rows);
  const auto stream = cuda_stream(ctx.stream);
  const float bits = p.precision.dtype == DType::bf16 ? 8 : 0;  // WideArgs::one
  run_before<Tiles>(p, t, s, padded, nullptr, ctx, bits);
  const auto args = [&](int q_box, int k_box, int tile, std::int64_t len, std::int64_t pairs, const DocumentTiles& list) {
    WideArgs a{};
    a.q = map_of(t.q, q_box);
    a.dout = map_of(t.d_o, q_box);
    a.k = map_of(t.k, k_box);
    a.v = map_of(t.v, k_box);
    a.lse = s.lse;
    a.minus_delta = s.minus_delta;
    a.dq = t.dq.data;
    a.dk = t.dk.data;
    a.dv = t.dv.data;
    a.dq_strides = strides_of(t.dq);
    a.dk_strides = strides_of(t.dk);
    a.dv_strides = strides_of(t.dv);
    a.far = s.far;
    a.band = in_32_bits(band_of(p, lists, 0));
    a.batch = int(p.batch);
    a.heads = int(p.heads);
    a.kv_heads = int(p.kv_heads);
    a.padded = int(padded);
    a.head_dim = int(p.head_dim);
    a.dim_v = int(p.value_dim());
    const float scale = p.scale_or_default();
    a.one = std::exp2(bits);
    a.scale = scale / a.one;
    a.scale_dv = 1 / a.one;
    a.scale_log2 = (cap ? p.softcap : scale) * log2e;
    a.capping = capping_of(scale, p.softcap);
    a.listed = list;
    a.not_numbers = not_numbers_of(lists);
    const std::int64_t tiles = (reach == Reach::listed && list.tiles ? list.most : ceil_div(len, tile)) * pairs;
    check(tiles < INT_MAX - ctx.device.units, Code::unsupported, "flash_sm90: {} tiles are too many for one launch", tiles);
    a.tiles_per_head = int(ceil_div(len, tile));
    a.tiles = int(tiles);
    a.heads_at_once =
        heads_at_once(pairs, 4.0 * double(std::max(p.len_q * p.group(), p.len_k)) * Tiles::dim, a.tiles_per_head, ctx.device.units);
    a.kept = kept;
    a.kept_of_documents = documents;
    return a;
  };
  const auto blocks = [&](const WideArgs& a) { return std::min(ctx.device.units, a.tiles); };
  int* counter = s.counters;
  const auto keys_in = [&](std::int64_t pairs) {
    WideArgs a = args(Tiles::rows, Tiles::keys, Tiles::keys, p.len_k, pairs, of_keys);
    a.next_tile = counter++;
    return a;
  };
  const auto rows_in = [&](std::int64_t pairs) {
    WideArgs a = args(64, Tiles::dq_keys, Tiles::dq_rows, p.len_q, pairs, of_rows);
    a.next_tile = counter++;
    return a;
  };
  if constexpr (reach == Reach::listed) {
    if (of_documents.count > 0) beside::call<start_list_kept>({.keys = of_keys, .to = documents, .finished = counter++}, stream);
    for (; documents.range < of_documents.count; ++documents.range) {
      const WideArgs keys = keys_in(p.batch * p.kv_heads), rows = rows_in(p.batch * p.heads);
      beside::call<start_dkdv<Keeping<Main>>>(keys, blocks(keys), stream);
      beside::call<start_dq_of_kept<Asking<Tiles, Reach::listed, false>>>(rows, blocks(rows), stream);
    }
  }
  if (ranges.count == 0 && of_documents.count == 0) {
    const WideArgs keys = keys_in(p.batch * p.kv_heads), rows = rows_in(p.batch * p.heads);
    beside::call<start_dkdv<Main>>(keys, blocks(keys), stream);
    beside::call<start_dq<Main>>(rows, blocks(rows), stream);
  } else if constexpr (reach != Reach::listed) {
    for (std::int64_t pair = 0; pair < p.batch * p.kv_heads; pair += ranges.pairs)
      for (std::int64_t head = 0; head < p.group(); head += ranges.heads) {
        kept.first_pair = int(pair), kept.pairs = int(std::min(ranges.pairs, p.batch * p.kv_heads - pair));
        kept.first_head = int(head), kept.heads = int(std::min(ranges.heads, p.group() - head));
        kept.resumes = head > 0, kept.goes_on = head + kept.heads < p.group();
        const WideArgs keys = keys_in(kept.pairs), rows = rows_in(std::int64_t(kept.pairs) * kept.heads);
        beside::call<start_dkdv<Keeping<Main>>>(keys, blocks(keys), stream);
        beside::call<start_dq_of_kept<Tiles>>(rows, blocks(rows), stream);
      }
  }
  mend_backward_on_gpu(p, t, lists, ctx);
}

template void backward_wide<Backward256<__nv_bfloat16>>(const Problem&, const Backward&, Context&);
template void backward_wide<Backward256<__nv_bfloat16>, Reach::run, true>(const Problem&, const Backward&, Context&);
template void backward_wide<Backward256<__nv_bfloat16>, Reach::listed, false>(const Problem&, const Backward&, Context&);
template void backward_wide<Backward256<__nv_bfloat16>, Reach::listed, true>(const Problem&, const Backward&, Context&);
template void backward_wide<Backward256<__half>>(const Problem&, const Backward&, Context&);
template void backward_wide<Backward256<__half>, Reach::run, true>(const Problem&, const Backward&, Context&);
template void backward_wide<Backward256<__half>, Reach::listed, false>(const Problem&, const Backward&, Context&);
template void backward_wide<Backward256<__half>, Reach::listed, true>(const Problem&, const Backward&, Context&);

}  // namespace headroom::attention::sm90::backward
