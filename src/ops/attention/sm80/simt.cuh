// simt.cuh — exact attention in fp32 arithmetic on the ordinary cores: no tensor cores, no tf32.
#pragma once
#include <numbers>

#include "gpu/launch.cuh"
#include "ops/attention/sink.h"
#include "ops/attention/sm80/simt_products.cuh"

namespace headroom::attention::blocks::simt {

constexpr float log2e = std::numbers::log2e_v<float>, ln2 = std::numbers::ln2_v<float>;

// attention_fwd_simt — O = softmax(scale·Q Kᵀ) V and LSE of `rows` queries of one head.
//   reads   Q once, K and V once per block (from L2)     writes  O, LSE
//   numerics  fp32 throughout; the maximum moves only when outgrown by 2^8     limit  fp32 multiply-adds
template <class Tiles, Asks asks>
__global__ void __launch_bounds__(32 * Tiles::warps) attention_fwd_simt(const __grid_constant__ ForwardArgs a) {
  using S = Asking<Shape<Tiles>, asks>;
  constexpr bool more = S::more;
  constexpr float slack = 8;
  extern __shared__ __align__(16) float shared[];
  float* const q = shared;
  float* const k = q + S::dim * S::turned_pitch;
  float* const v = k + S::columns * S::row_pitch;
  float* const p = v + S::columns * S::row_pitch;
  const Lane lane;
  const ForwardWalk<S> walk(a);
  const Place at = walk.at;
  const int mine = first_row<S>(lane);

  float o[S::high][S::deep], maximum[S::high], sum[S::high];
#pragma unroll
  for (int i = 0; i < S::high; ++i) {
    maximum[i] = -INFINITY, sum[i] = 0;
#pragma unroll
    for (int c = 0; c < S::deep; ++c) o[i][c] = 0;
  }
  const bool capped = more && a.cap != 0;
  const float scale = capped ? a.scale / a.cap : a.scale * log2e;

  float s[S::wide][S::high];
  [[maybe_unused]] Fall falls[S::high];
  if constexpr (S::falls)
#pragma unroll
    for (int i = 0; i < S::high; ++i) falls[i] = Fall::of<false>(a.alibi, at.batch, at.head, walk.row0 + mine + S::row(i), log2e);
  const auto fetch_q = [&] { fetch_turned<S>(q, rows_at<float>(a.q, at.batch, at.head, walk.row0), a.q.row, walk.valid, a.head_dim); };
  const DrawsIf<S::by_place> draws(a.dropout);
  const auto scores = [&](int tile) {
    rows_times_rows<S>(s, q, k);
    const bool plain = walk.plain(tile);
    bool moved = false;
    float factor[S::high];
#pragma unroll
    for (int i = 0; i < S::high; ++i) {
#pragma unroll
      for (int j = 0; j < S::wide; ++j) s[j][i] *= scale;
      if (capped)
#pragma unroll
        for (int j = 0; j < S::wide; ++j) s[j][i] = a.cap * log2e * tanh_of(s[j][i]);
      if constexpr (S::falls)
#pragma unroll
        for (int j = 0; j < S::wide; ++j) s[j][i] -= falls[i].at(walk.first_column(tile) + lane.x, 8 * j);
      if (!plain) {
        const Limits seen = walk.seen_by(mine + S::row(i), tile);
#pragma unroll
        for (int j = 0; j < S::wide; ++j)
          if (!seen.sees(lane.x + 8 * j)) s[j][i] = -INFINITY;
      }
      float largest = s[0][i];
#pragma unroll
      for (int j = 1; j < S::wide; ++j) largest = fmaxf(largest, s[j][i]);
#pragma unroll
      for (int step = 2; step < 16; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
      if (!(largest - maximum[i] > slack)) largest = maximum[i];  // also when both are -inf
      const float reference = largest == -INFINITY ? 0.f : largest;
      factor[i] = exp2_fast(maximum[i] - reference);
      moved |= largest != maximum[i];
      maximum[i] = largest;
      sum[i] *= factor[i];
#pragma unroll
      for (int j = 0; j < S::wide; ++j) sum[i] += s[j][i] = exp2_fast(s[j][i] - reference);
    }
    if constexpr (S::by_place)
      if (S::drops(a.dropout)) {  // dropped after the sums have seen all
        unsigned dropped[S::high];
        draw_dropped<S, false>(dropped, draws.of_head(at.batch * a.heads + at.head), a.dropout.below, walk.row0 + mine,
                               walk.first_column(tile));
#pragma unroll
        for (int j = 0; j < S::wide; ++j)
#pragma unroll
          for (int i = 0; i < S::high; ++i)
            if (dropped[i] >> j & 1) s[j][i] = 0;
      }
    share<S>(p, s);
    if (__any_sync(~0u, moved)) {
#pragma unroll
      for (int i = 0; i < S::high; ++i)
#pragma unroll
        for (int c = 0; c < S::deep; ++c) o[i][c] *= factor[i];
    }
  };
  walk.pass(k, v, fetch_q, scores, [&] { scores_times_rows<S>(o, p, v); });
  report_nan<more>(o, a.not_numbers);

#pragma unroll
  for (int i = 0; i < S::high; ++i) {
    const int row = walk.row0 + mine + S::row(i);
#pragma unroll
    for (int step = 2; step < 16; step *= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], step);
    if (row >= a.band.len_q) continue;
    const bool empty = maximum[i] == -INFINITY;
    float weight = empty ? 0.f : 1 / sum[i], lse = empty ? -INFINITY : (maximum[i] + log2f(sum[i])) * ln2;
    if (more && a.sink) {
      const Joined all = join_sink(maximum[i] * ln2, empty ? 0.f : sum[i], a.sink[at.head]);
      weight = all.weight;
      lse = all.lse;
    }
    if constexpr (S::by_place) weight *= a.dropout.factor;
    store_row<S>(rows_at<float>(a.o, at.batch, at.head, row), o[i], weight, a.dim_v, a.wide);
    if (lane.x == 0) *walk.lse_of(row) = lse;
  }
}

// attention_bwd_simt — dQ of `rows` queries; dK and dV (or one of them) of `rows` keys; or these and their part of every dQ. Scores recomputed.
//   S = A Bᵀ and dP = A' B'ᵀ with (A, A'; B, B') = (Q, dO; K, V) for dQ, (K, V; Q, dO) for dK and dV; P = 2^(S·c - LSE); dS = P ∘ (dP - Δ)
//   dQ or dK += dS B, dV += P B'; parts of dQ are added as they come, all else in one order: heads of a group, then tiles, one after another
template <class Tiles, Wants wants, Asks asks>
__global__ void __launch_bounds__(32 * Tiles::warps) attention_bwd_simt(const __grid_constant__ BackwardArgs a) {
  using S = Asking<Shape<Tiles>, asks>;
  constexpr bool more = S::more;
  constexpr bool of_keys = wants != Wants::dq, all = wants == Wants::all, first = wants != Wants::dv,
                 second = wants == Wants::dk_dv || wants == Wants::dv || all;
  extern __shared__ __align__(16) float shared[];
  float* const a1 = shared;
  float* const a2 = a1 + S::dim * S::turned_pitch;
  float* const b1 = a2 + S::dim * S::turned_pitch;
  float* const b2 = b1 + S::columns * S::row_pitch;
  float* const p = b2 + S::columns * S::row_pitch;
  const Lane lane;
  const BackwardWalk<S, of_keys> walk(a);
  const Place at = walk.at;
  const int mine = first_row<S>(lane);

  float d1[first ? S::high : 1][S::deep] = {}, d2[second ? S::high : 1][S::deep] = {};
  float lse[S::high], delta[S::high];
  if constexpr (!of_keys)
#pragma unroll
    for (int i = 0; i < S::high; ++i) {
      lse[i] = walk.statistics_of(a.lse, at.head)[walk.row0 + mine + S::row(i)];
      delta[i] = walk.statistics_of(a.delta, at.head)[walk.row0 + mine + S::row(i)];
    }
  const auto fetch_rows = [&] {
    const auto one = [&](float* to, const Strided& from, int dim) {
      fetch_turned<S>(to, rows_at<float>(from, at.batch, at.head, walk.row0), from.row, walk.valid, dim);
    };
    one(a1, of_keys ? a.k : a.q, a.head_dim);
    if constexpr (first) one(a2, of_keys ? a.v : a.d_o, a.dim_v);
  };
  const bool capped = more && a.cap != 0;
  const float scale = capped ? a.scale / a.cap : a.scale * log2e, cap = a.cap * log2e;

  const DrawsIf<S::by_place> draws(a.dropout);
  const auto gradients = [&](int step) {
    const int tile = walk.tile_of(step);
    float s[S::wide][S::high];
    rows_times_rows<S>(s, a1, b1);
    const bool plain = walk.plain(tile) && (!all || walk.valid == S::rows);
#pragma unroll
    for (int i = 0; i < S::high; ++i) {
      const auto power = [&](int j) {
        const float its_lse = of_keys ? statistics_at<float, S::dim>(b1, lane.x + 8 * j).x : lse[i];
        return capped ? fmaf(cap, tanh_of(s[j][i] * scale), -its_lse) : fmaf(s[j][i], scale, -its_lse);
      };
      if constexpr (S::falls) {
        const Fall fall = Fall::of<of_keys>(a.alibi, at.batch, walk.query_head_of(step), walk.row0 + mine + S::row(i), log2e);
#pragma unroll
        for (int j = 0; j < S::wide; ++j) s[j][i] = probability(power(j) - fall.at(walk.first_column(tile) + lane.x, 8 * j));
      } else {
#pragma unroll
        for (int j = 0; j < S::wide; ++j) s[j][i] = probability(power(j));
      }
      if (!plain) {
        Limits seen = walk.seen_by(mine + S::row(i), tile);
        if (all && mine + S::row(i) >= walk.valid) seen = {0, 0};  // P of keys that are none may be infinite, and must not meet dQ
#pragma unroll
        for (int j = 0; j < S::wide; ++j)
          if (!seen.sees(lane.x + 8 * j)) s[j][i] = 0;
      }
    }
    [[maybe_unused]] unsigned dropped[S::high] = {};
    if constexpr (S::by_place)
      if (S::drops(a.dropout))
        draw_dropped<S, of_keys>(dropped, draws.of_head(walk.pair_of(step)), a.dropout.below, walk.row0 + mine, walk.first_column(tile));
    if constexpr (second) {
      if constexpr (S::by_place) {  // dV grows by the factor at the end
        float kept[S::wide][S::high];
#pragma unroll
        for (int j = 0; j < S::wide; ++j)
#pragma unroll
          for (int i = 0; i < S::high; ++i) kept[j][i] = dropped[i] >> j & 1 ? 0.f : s[j][i];
        share<S>(p, kept);
      } else {
        share<S>(p, s);
      }
      scores_times_rows<S>(d2, p, b2);
    }
    if constexpr (first) {
      float dp[S::wide][S::high];
      rows_times_rows<S>(dp, a2, b2);
      if constexpr (S::by_place)
#pragma unroll
        for (int j = 0; j < S::wide; ++j)
#pragma unroll
          for (int i = 0; i < S::high; ++i) dp[j][i] = dropped[i] >> j & 1 ? 0.f : dp[j][i] * a.dropout.factor;
#pragma unroll
      for (int j = 0; j < S::wide; ++j) {
#pragma unroll
        for (int i = 0; i < S::high; ++i)
          s[j][i] = s[j][i] == 0 ? 0.f : s[j][i] * (dp[j][i] - (of_keys ? statistics_at<float, S::dim>(b1, lane.x + 8 * j).y : delta[i]));
      }
      if (capped) {  // the scores again, for the slope of the cap: dP's registers are free
        rows_times_rows<S>(dp, a1, b1);
#pragma unroll
        for (int j = 0; j < S::wide; ++j)
#pragma unroll
          for (int i = 0; i < S::high; ++i) s[j][i] *= slope_of_tanh(tanh_of(dp[j][i] * scale));
      }
      share<S>(p, s);
      scores_times_rows<S>(d1, p, b1);
    }
  };
  walk.pass(b1, b2, fetch_rows, gradients, [&](int step) {
    if constexpr (all)
      add_scores_across_rows<S>(p, a1, walk.dq_of(step), a.dq.row, walk.valid_columns(walk.tile_of(step)), a.head_dim, a.scale,
                                a.not_numbers);
  });
  if constexpr (first) report_nan<more>(d1, a.not_numbers);
  if constexpr (second) report_nan<more>(d2, a.not_numbers);

#pragma unroll
  for (int i = 0; i < S::high; ++i) {
    const int row = walk.row0 + mine + S::row(i);
    if (row >= walk.rows) continue;
    const Strided& to1 = of_keys ? a.dk : a.dq;
    if constexpr (first) store_row<S>(rows_at<float>(to1, at.batch, at.head, row), d1[i], a.scale, a.head_dim, a.wide);
    if constexpr (second)
      store_row<S>(rows_at<float>(a.dv, at.batch, at.head, row), d2[i], S::by_place ? a.dropout.factor : 1.f, a.dim_v, a.wide);
  }
}

template <class Tiles, ByPlace by_place>
void start_forward(const ForwardArgs& a, cudaStream_t stream) {
  const auto kernel = [&] {
    if constexpr (by_place != ByPlace::nothing)
      return attention_fwd_simt<Tiles, asked_by_place<by_place>>;
    else
      return asks_more(a) ? attention_fwd_simt<Tiles, Asks::more> : attention_fwd_simt<Tiles, Asks::plain>;
  }();
  launch(stream, kernel, {dim3(unsigned(a.deal.tiles) * a.deal.pairs), 32 * Tiles::warps, forward_shared_bytes<Tiles>()}, a);
}
template <class Tiles, Wants wants, ByPlace by_place>
void start_backward(const BackwardArgs& a, cudaStream_t stream) {
  const auto kernel = [&] {
    if constexpr (by_place != ByPlace::nothing)
      return attention_bwd_simt<Tiles, wants, asked_by_place<by_place>>;
    else
      return asks_more(a) ? attention_bwd_simt<Tiles, wants, Asks::more> : attention_bwd_simt<Tiles, wants, Asks::plain>;
  }();
  launch(stream, kernel, {dim3(unsigned(a.deal.tiles) * a.deal.pairs), 32 * Tiles::warps, backward_shared_bytes<Tiles>()}, a);
}

}  // namespace headroom::attention::blocks::simt
