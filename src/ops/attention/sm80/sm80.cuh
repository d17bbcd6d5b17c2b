// sm80.cuh — attention by the warp's matrix instruction: bf16, fp16, and fp32 storage multiplied as tf32 (T = float).
#pragma once
#include "gpu/launch.cuh"
#include "ops/attention/sm80/sm80_across.cuh"
#include "ops/attention/sm80/sm80_products.cuh"
#include "ops/attention/softmax.cuh"

namespace headroom::attention::blocks::sm80 {

// attention_fwd_sm80 — O = softmax(scale·Q Kᵀ) V and LSE of `rows` queries of one head.
//   reads   Q once, K and V once per block (from L2)     writes  O, LSE
//   numerics  fp32 scores and sums; P rounded to T (or tf32) as an operand     needs  scale > 0     limit  shared memory, then matrix units
template <class Tiles, Asks asks>
__global__ void __launch_bounds__(32 * Tiles::warps) attention_fwd_sm80(const __grid_constant__ ForwardArgs a) {
  using S = Asking<Shape<Tiles, false>, asks>;
  using T = typename S::T;
  constexpr bool more = S::more;
  extern __shared__ __align__(16) unsigned char shared[];
  T* const q = reinterpret_cast<T*>(shared);
  T* const k = q + S::rows * S::row_pitch;
  T* const v = k + S::columns * S::row_pitch;
  const ForwardWalk<S> walk(a);
  const Place at = walk.at;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16 * S::high;

  float o[S::high][S::outputs] = {};
  std::conditional_t<S::in_parts, ExactRows, Rows> state[S::high];
  const bool capped = more && a.cap != 0;
  const float scale = capped ? log2e : a.scale * log2e;
  float s[S::high][S::scores];
  [[maybe_unused]] Fall falls[S::high][2];
  if constexpr (S::falls)
#pragma unroll
    for (int m = 0; m < S::high; ++m)
      falls_of<false>(falls[m], a.alibi, at.batch, at.head, walk.row0 + warp_row + 16 * m, capped ? 1 : 1 / a.scale);
  const DrawsIf<S::by_place> draws(a.dropout);
  const auto scores = [&](int tile) {
    scores_of<S, true>(s, q + warp_row * S::row_pitch, k);
#pragma unroll
    for (int m = 0; m < S::high; ++m) {
      if (capped)
#pragma unroll
        for (int i = 0; i < S::scores; ++i) s[m][i] = a.cap * tanh_of(s[m][i] * (a.scale / a.cap));
      if constexpr (S::falls) let_fall(s[m], falls[m], walk.first_column(tile) + lane % 4 * 2, [&](int i) { return s[m][i]; });
      if (!walk.plain(tile)) {
        int first[2], end[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const Limits seen = walk.seen_by(warp_row + 16 * m + lane / 4 + 8 * r, tile);
          first[r] = seen.first, end[r] = seen.end;
        }
        apply_mask<true>(s[m], lane % 4 * 2, first, end);
      }
      const float2 factor = state[m].template update<true>(s[m], scale);
      if (__any_sync(~0u, factor.x != 1 || factor.y != 1)) {
#pragma unroll
        for (int i = 0; i < S::outputs; ++i) o[m][i] *= i % 4 < 2 ? factor.x : factor.y;
      }
    }
    if constexpr (S::by_place)
      if (S::drops(a.dropout)) {  // dropped after the sums have seen all
        unsigned dropped[S::high];
        draw_dropped<S, false>(dropped, draws.of_head(at.batch * a.heads + at.head), a.dropout.below, walk.row0 + warp_row,
                               walk.first_column(tile));
#pragma unroll
        for (int m = 0; m < S::high; ++m)
#pragma unroll
          for (int i = 0; i < S::scores; ++i)
            if (dropped[m] >> i & 1) s[m][i] = 0;
      }
  };
  walk.pass(
      k, v, [&] { walk.fetch_rows(q, a.q, a.head_dim); }, scores, [&] { scores_times_rows<S>(o, s, v); });
  report_nan<more>(o, a.not_numbers);

#pragma unroll
  for (int m = 0; m < S::high; ++m) {
    auto result = state[m].finish(scale);
    if (more && a.sink) result.join(a.sink[at.head]);
    if constexpr (S::by_place) result.inverse[0] *= a.dropout.factor, result.inverse[1] *= a.dropout.factor;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = walk.row0 + warp_row + 16 * m + lane / 4 + 8 * r;
      if (row >= a.band.len_q) continue;
      store_row<S>(rows_at<T>(a.o, at.batch, at.head, row), o[m], r, result.inverse[r], a.dim_v, a.wide);
      if (lane % 4 == 0) *walk.lse_of(row) = result.lse[r];
    }
  }
}

// attention_bwd_sm80 — as attention_bwd_simt.
template <class Tiles, Wants wants, Asks asks>
__global__ void __launch_bounds__(32 * Tiles::warps) attention_bwd_sm80(const __grid_constant__ BackwardArgs a) {
  using S = Asking<Shape<Tiles, true>, asks>;
  using T = typename S::T;
  constexpr bool more = S::more;
  constexpr bool of_keys = wants != Wants::dq, all = wants == Wants::all, first = wants != Wants::dv,
                 second = wants == Wants::dk_dv || wants == Wants::dv || all;
  extern __shared__ __align__(16) unsigned char shared[];
  T* const a1 = reinterpret_cast<T*>(shared);
  T* const a2 = a1 + S::rows * S::row_pitch;
  T* const b1 = a2 + S::rows * S::row_pitch;
  T* const b2 = b1 + S::columns * S::row_pitch;
  T* const p = b2 + S::columns * S::row_pitch;  // only where all are wanted
  const BackwardWalk<S, of_keys> walk(a);
  const Place at = walk.at;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16 * S::high;

  float d1[first ? S::high : 1][S::outputs] = {}, d2[second ? S::high : 1][S::outputs] = {};
  float lse[S::high][2], delta[S::high][2];
  if constexpr (!of_keys)
#pragma unroll
    for (int m = 0; m < S::high; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = walk.row0 + warp_row + 16 * m + lane / 4 + 8 * r;
        lse[m][r] = walk.statistics_of(a.lse, at.head)[row], delta[m][r] = walk.statistics_of(a.delta, at.head)[row];
      }
  const auto fetch_rows = [&] {
    walk.fetch_rows(a1, of_keys ? a.k : a.q, a.head_dim);
    if constexpr (first) walk.fetch_rows(a2, of_keys ? a.v : a.d_o, a.dim_v);
  };
  const bool capped = more && a.cap != 0;
  const float scale = capped ? a.scale / a.cap : a.scale * log2e, cap = a.cap * log2e;

  const DrawsIf<S::by_place> draws(a.dropout);
  const auto gradients = [&](int step) {
    const int tile = walk.tile_of(step);
    float s[S::high][S::scores];
    scores_of<S, !of_keys>(s, a1 + warp_row * S::row_pitch, b1);
    const bool plain = walk.plain(tile) && (!all || walk.valid == S::rows);
    const auto column_of = [&](int i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; };  // the column of a lane's score i
#pragma unroll
    for (int m = 0; m < S::high; ++m) {
      const auto power = [&](int i) {
        const float its_lse = of_keys ? statistics_at<T, S::dim>(b1, column_of(i)).x : lse[m][i / 2 % 2];
        return capped ? fmaf(cap, tanh_of(s[m][i] * scale), -its_lse) : fmaf(s[m][i], scale, -its_lse);
      };
      if constexpr (S::falls) {  // found anew for each tile: kept, they would not fit in registers
        Fall falls[2];
        falls_of<of_keys>(falls, a.alibi, at.batch, walk.query_head_of(step), walk.row0 + warp_row + 16 * m, log2e);
        let_fall(s[m], falls, walk.first_column(tile) + lane % 4 * 2, power);
#pragma unroll
        for (float& x : s[m]) x = probability(x);
      } else {
#pragma unroll
        for (int i = 0; i < S::scores; ++i) s[m][i] = probability(power(i));
      }
      if (!plain)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = warp_row + 16 * m + lane / 4 + 8 * r;
          Limits seen = walk.seen_by(row, tile);
          if (all && row >= walk.valid) seen = {0, 0};  // P of keys that are none may be infinite, and must not meet dQ
#pragma unroll
          for (int i = 0; i < S::scores; ++i)
            if (i / 2 % 2 == r && !seen.sees(column_of(i))) s[m][i] = 0;
        }
    }
    [[maybe_unused]] unsigned dropped[S::high] = {};
    if constexpr (S::by_place)
      if (S::drops(a.dropout))
        draw_dropped<S, of_keys>(dropped, draws.of_head(walk.pair_of(step)), a.dropout.below, walk.row0 + warp_row,
                                 walk.first_column(tile));
    if constexpr (second && S::by_place) {  // dV grows by the factor at the end
      float kept[S::high][S::scores];
#pragma unroll
      for (int m = 0; m < S::high; ++m)
#pragma unroll
        for (int i = 0; i < S::scores; ++i) kept[m][i] = dropped[m] >> i & 1 ? 0.f : s[m][i];
      scores_times_rows<S>(d2, kept, b2);
    } else if constexpr (second) {
      scores_times_rows<S>(d2, s, b2);
    }
    if constexpr (first) {
      float dp[S::high][S::scores];
      slopes_of<S>(dp, a2 + warp_row * S::row_pitch, b2);
      if constexpr (S::by_place)
#pragma unroll
        for (int m = 0; m < S::high; ++m)
#pragma unroll
          for (int i = 0; i < S::scores; ++i) dp[m][i] = dropped[m] >> i & 1 ? 0.f : dp[m][i] * a.dropout.factor;
#pragma unroll
      for (int m = 0; m < S::high; ++m)
#pragma unroll
        for (int i = 0; i < S::scores; ++i) {
          const float ds = s[m][i] * (dp[m][i] - (of_keys ? statistics_at<T, S::dim>(b1, column_of(i)).y : delta[m][i / 2 % 2]));
          s[m][i] = s[m][i] == 0 ? 0.f : ds;
        }
      if (capped) {  // the scores again, for the slope of the cap: dP's registers are free
        scores_of<S, !of_keys>(dp, a1 + warp_row * S::row_pitch, b1);
#pragma unroll
        for (int m = 0; m < S::high; ++m)
#pragma unroll
          for (int i = 0; i < S::scores; ++i) s[m][i] *= slope_of_tanh(tanh_of(dp[m][i] * scale));
      }
      if constexpr (all) share<S>(p + warp_row * S::p_pitch, s);
      scores_times_rows<S>(d1, s, b1);
    }
  };
  walk.pass(b1, b2, fetch_rows, gradients, [&](int step) {
    if constexpr (all)
      add_scores_across_rows<S>(p, a1, walk.dq_of(step), a.dq.row, walk.valid_columns(walk.tile_of(step)), a.head_dim, a.scale, a.wide,
                                a.not_numbers);
  });
  if constexpr (first) report_nan<more>(d1, a.not_numbers);
  if constexpr (second) report_nan<more>(d2, a.not_numbers);

#pragma unroll
  for (int m = 0; m < S::high; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = walk.row0 + warp_row + 16 * m + lane / 4 + 8 * r;
      if (row >= walk.rows) continue;
      const Strided& to1 = of_keys ? a.dk : a.dq;
      if constexpr (first) store_row<S>(rows_at<T>(to1, at.batch, at.head, row), d1[m], r, a.scale, a.head_dim, a.wide);
      if constexpr (second)
        store_row<S>(rows_at<T>(a.dv, at.batch, at.head, row), d2[m], r, S::by_place ? a.dropout.factor : 1.f, a.dim_v, a.wide);
    }
}

template <class Tiles, ByPlace by_place>
void start_forward(const ForwardArgs& a, cudaStream_t stream) {
  const auto kernel = [&] {
    if constexpr (by_place != ByPlace::nothing)
      return attention_fwd_sm80<Tiles, asked_by_place<by_place>>;
    else
      return asks_more(a) ? attention_fwd_sm80<Tiles, Asks::more> : attention_fwd_sm80<Tiles, Asks::plain>;
  }();
  launch(stream, kernel, {dim3(unsigned(a.deal.tiles) * a.deal.pairs), 32 * Tiles::warps, forward_shared_bytes<Tiles>()}, a);
}
template <class Tiles, Wants wants, ByPlace by_place>
void start_backward(const BackwardArgs& a, cudaStream_t stream) {
  constexpr int bytes = wants == Wants::all ? fused_shared_bytes<Tiles>() : backward_shared_bytes<Tiles>();
  const auto kernel = [&] {
    if constexpr (Tiles::across)
      return asks_more(a) ? attention_bwd_across<Tiles, wants, Asks::more> : attention_bwd_across<Tiles, wants, Asks::plain>;
    else if constexpr (by_place != ByPlace::nothing)
      return attention_bwd_sm80<Tiles, wants, asked_by_place<by_place>>;
    else
      return asks_more(a) ? attention_bwd_sm80<Tiles, wants, Asks::more> : attention_bwd_sm80<Tiles, wants, Asks::plain>;
  }();
  launch(stream, kernel, {dim3(unsigned(a.deal.tiles) * a.deal.pairs), 32 * Tiles::warps, bytes}, a);
}

}  // namespace headroom::attention::blocks::sm80
