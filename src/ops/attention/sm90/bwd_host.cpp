// flash_sm90 — Hopper's attention backward, host side: scratch, tensor maps, launches.
//
// Head dims up to 128: a kernel before (Δ, LSE·log2e), the main one, and one that rounds dQ. dK and dV repeat bit for bit; dQ too when the
// problem asks to be deterministic, and wherever that is the faster way: then key tiles add to it in a fixed order. Head dims up to 256 are
// bwd_wide_host.cpp's, always deterministic.
// Workspace: 8 bytes per row and head, and the fp32 sum of dQ.
#include "ops/attention/sm90/bwd_host.h"
#include "gpu/urgent_stream.h"
#include "ops/attention/mend/mend.h"
#include "ops/attention/sm90/bwd_dealt.h"
#include "ops/attention/units_us.h"

namespace headroom::attention {

namespace {

using namespace sm90;
using namespace sm90::backward;

// Before: a shape of as many rows that has that kernel. `reach`, `cap` and `by_place`: what more is asked.
template <class Tiles, bool ordered, class Before = Tiles, Reach reach = Reach::run, bool cap = false, ByPlace by_place = ByPlace::nothing>
void backward_with(const Problem& p, const Backward& t, Context& ctx) {
  using Asked = std::conditional_t<reach == Reach::run && !cap, Tiles, Asking<Tiles, reach, cap>>;
  using Main = std::conditional_t<by_place == ByPlace::nothing, Asked, Placing<Asked, by_place>>;
  constexpr bool from_list = reach == Reach::listed && !ordered, counts = ordered || from_list;  // additions to dQ
  const DocumentTiles listed = from_list ? make_tiles_and_rows(p, ctx, backward_keys, Tiles::rows, 1) : DocumentTiles{};
  const std::int64_t pairs = p.batch * p.heads, kv_pairs = p.batch * p.kv_heads,
                     query_tiles = from_list ? listed.most_row_tiles : ceil_div(p.len_q, Tiles::rows), padded = query_tiles * Tiles::rows;
  const Statistics s = make_statistics(p, padded, 1 + (counts ? pairs * query_tiles * 2 : 0), ctx);
  float* const dq = ctx.arena.make("attention.dq_sum", DType::f32, {pairs, padded, Tiles::dim}).template as<float>();
  const Lists lists = make_lists(p, ctx);
  if (ctx.dry()) return;
  list_documents_on_gpu(p, t.with, lists, ctx, nullptr, listed);
  const auto stream = cuda_stream(ctx.stream);
  run_before<Before>(p, t, s, padded, counts ? nullptr : dq, ctx, 0, listed);

  Args a{};
  a.q = map_of(t.q, Tiles::rows);
  a.dout = map_of(t.d_o, Tiles::rows);
  a.k = map_of(t.k, backward_keys);
  a.v = map_of(t.v, backward_keys);
  a.lse = s.lse;
  a.minus_delta = s.minus_delta;
  a.dq = dq;
  a.dk = t.dk.data;
  a.dv = t.dv.data;
  a.dk_strides = strides_of(t.dk);
  a.dv_strides = strides_of(t.dv);
  a.next_tile = s.counters;
  a.turns = s.counters + 1;
  a.far = s.far;
  a.band = in_32_bits(band_of(p, lists, 0));
  a.batch = int(p.batch);
  a.heads = int(p.heads);
  a.kv_heads = int(p.kv_heads);
  a.head_dim = int(p.head_dim);
  a.dim_v = int(p.value_dim());
  a.scale = p.scale_or_default();
  a.scale_log2 = (cap ? p.softcap : a.scale) * log2e;
  a.capping = capping_of(a.scale, p.softcap);
  if constexpr (by_place == ByPlace::alibi) {
    a.alibi = alibi_of(p, t.with);
    a.fall_by = 1 / a.scale;
  }
  if constexpr (by_place == ByPlace::dropout) {
    a.dropout = dropout_of(p, t.with);
    a.scale *= a.dropout.factor;
    a.of_delta = 1 / a.dropout.factor;
  }
  a.key_tiles = int(ceil_div(p.len_k, backward_keys));
  a.query_tiles = int(query_tiles);
  a.listed = listed;
  a.not_numbers = not_numbers_of(lists);
  a.turned_by = t.turned_by.as<float>();
  std::int64_t tiles = (from_list ? listed.most : a.key_tiles) * kv_pairs, blocks = std::min<std::int64_t>(ctx.device.units, tiles);
  const bool asks = reach == Reach::listed || better_asked(p, shape_of<Tiles>(), ctx.device.units);
  a.dealt = ordered && !asks;
  if (a.dealt) {
    const Rounds r = rounds_of(kv_pairs, a.key_tiles, query_tiles, a.band.reach == Reach::before, ctx.device.units);
    a.together = int(r.together);
    a.spread = r.spread;
    a.heads_at_once = int(r.heads);
    blocks = r.together * r.heads;
    tiles = blocks * r.count;
  } else {
    a.heads_at_once =
        heads_at_once(kv_pairs, 8.0 * double(p.len_q * p.group()) * Tiles::dim, a.key_tiles, ctx.device.units);  // Q, dO and the sum of dQ
  }
  check(tiles < INT_MAX - ctx.device.units, Code::unsupported, "flash_sm90: {} tiles are too many for one launch", tiles);
  a.tiles = int(tiles);
  beside::call<start_main<Main, ordered>>(a, int(blocks), stream);

  beside::call<start_after<Tiles>>({.dq = dq,
                                    .turns = reach == Reach::listed ? a.turns : nullptr,
                                    .out = t.dq.data,
                                    .strides = strides_of(t.dq),
                                    .band = a.band,
                                    .heads = a.heads,
                                    .head_dim = a.head_dim,
                                    .query_tiles = a.query_tiles,
                                    .scale = a.scale,
                                    .not_numbers = a.not_numbers,
                                    .row_tiles = listed.row_tiles,
                                    .turned_by = a.turned_by},
                                   int(pairs), stream);
  mend_backward_on_gpu(p, t, lists, ctx);
}

// Packed documents and capped scores. Capped scores in a fixed order are refused up to head dim 128. Short documents always have a fixed order:
// their tiles of keys are cut at no border (bench/lab/attention_bwd_documents.md).
template <class T, Reach reach, bool cap>
void backward_of_more(const Problem& p, const Backward& t, Context& ctx) {
  const std::int64_t dim = std::max(p.head_dim, p.value_dim());
  if (dim > 128) return backward_wide<Backward256<T>, reach, cap>(p, t, ctx);
  if constexpr (cap) {
    if (dim > 64) return backward_with<Backward128<T>, false, Backward128<T>, reach, cap>(p, t, ctx);
    backward_with<Backward64Capped<T>, false, Backward64<T>, reach, cap>(p, t, ctx);
  } else {
    const bool brief = p.documents * 512 >= p.len_q;  // mean length 512 or less
    if (dim <= 64) {
      if (p.deterministic || brief) return backward_with<Backward64<T>, true, Backward64<T>, reach>(p, t, ctx);
      return backward_with<Backward64<T>, false, Backward64<T>, reach>(p, t, ctx);
    }
    if (p.deterministic || (brief && p.group() == 1)) return backward_with<Backward128<T>, true, Backward128<T>, reach>(p, t, ctx);
    backward_with<Backward128<T>, false, Backward128<T>, reach>(p, t, ctx);
  }
}

// Blocks in a fixed order wait for each other. Two launches of them on streams of one priority are placed one after the other; on streams of
// two priorities each could hold multiprocessors that the other waits for. So unless the caller asked, only streams of the usual priority get them.
bool usual_priority(const Context& ctx) { return ctx.dry() || priority_of(ctx.stream) == 0; }

template <class Tiles>
void backward_in_either_order(const Problem& p, const Backward& t, Context& ctx) {
  if (p.deterministic || (better_in_order(p, shape_of<Tiles>(), ctx.device.units) && usual_priority(ctx)))
    backward_with<Tiles, true>(p, t, ctx);
  else
    backward_with<Tiles, false>(p, t, ctx);
}

template <class T, ByPlace what>
void backward_by_place(const Problem& p, const Backward& t, Context& ctx) {
  if (std::max(p.head_dim, p.value_dim()) > 64)
    return backward_with<Backward128<T>, false, Backward128<T>, Reach::run, false, what>(p, t, ctx);
  backward_with<Backward64<T>, false, Backward64<T>, Reach::run, false, what>(p, t, ctx);
}

template <class T>
void backward_as(const Problem& p, const Backward& t, Context& ctx) {
  const bool cap = p.softcap != 0;
  if (p.documents != 0)
    return cap ? backward_of_more<T, Reach::listed, true>(p, t, ctx) : backward_of_more<T, Reach::listed, false>(p, t, ctx);
  if (cap) return backward_of_more<T, Reach::run, true>(p, t, ctx);
  const std::int64_t dim = std::max(p.head_dim, p.value_dim());
  if (p.asks_by_place())
    return p.alibi ? backward_by_place<T, ByPlace::alibi>(p, t, ctx) : backward_by_place<T, ByPlace::dropout>(p, t, ctx);
  if (dim > 128) return backward_wide<Backward256<T>>(p, t, ctx);
  if (dim > 96) return backward_in_either_order<Backward128<T>>(p, t, ctx);
  if (dim > 80) return backward_with<Backward96<T>, true, Backward128<T>>(p, t, ctx);
  if (dim > 64) return backward_with<Backward80<T>, true, Backward128<T>>(p, t, ctx);
  backward_in_either_order<Backward64<T>>(p, t, ctx);
}

void zero(const Tensor& t, Context& ctx) {
  if (t.count() == 0 || ctx.dry()) return;
  beside::call<start_zero>({t.data, strides_of(t), int(t.shape[3])}, int(t.shape[0]), int(t.shape[1]), int(t.shape[2]),
                           cuda_stream(ctx.stream));
}

}  // namespace

// Where each row's elements lie in one thread with their partners, and the kernel is none of those that ask for more.
bool sm90_turns_back(const Problem& p) {
  const bool whole_tile = p.head_dim == 64 || p.head_dim == 80 || p.head_dim == 96 || p.head_dim == 128;
  return whole_tile && p.len_q == p.len_k && p.value_dim() <= p.head_dim && p.documents == 0 && p.softcap == 0 && !p.asks_by_place();
}

void sm90_backward(const Problem& p, const Backward& t, Context& ctx) {
  Cost cost = capped(p, backward_cost(p), operations_of_cap);
  cost.on_card.launches = 3;  // row sums, the main kernel, dQ's sums into its type
  if (std::max(p.head_dim, p.value_dim()) > 128)
    cost.on_card.launches = 1 + 2 * std::max<std::int64_t>(1, kept_ranges(p, ctx.device.units).count);  // row sums, dK and dV, dQ
  if (ctx.forecasts()) cost.on_card.units_us = sm90_backward_us(p, ctx.device);
  const auto op = ctx.note("attention.flash_sm90.backward", p.precision, cost, Work::attention, Making::gradients);
  if (p.q_shape().count() == 0 || p.k_shape().count() == 0) {
    for (const Tensor* gradient : {&t.dq, &t.dk, &t.dv}) zero(*gradient, ctx);
    if (t.dsink && !ctx.dry()) sum_dsink_on_gpu(p, t.with.sink, t.lse, without_keys(p, t), t.dsink, ctx);
    return;
  }
  if (!ctx.dry())
    for (auto [name, tensor] :
         {std::pair{"q", &t.q}, {"k", &t.k}, {"v", &t.v}, {"o", &t.o}, {"d_o", &t.d_o}, {"dq", &t.dq}, {"dk", &t.dk}, {"dv", &t.dv}})
      check_reachable(name, *tensor);
  if (p.precision.dtype == DType::bf16)
    backward_as<__nv_bfloat16>(p, t, ctx);
  else
    backward_as<__half>(p, t, ctx);
}

}  // namespace headroom::attention
