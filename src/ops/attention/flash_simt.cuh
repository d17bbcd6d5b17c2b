// flash_simt.cuh — exact attention in fp32 arithmetic on the ordinary cores: no tensor cores, no tf32.
#pragma once
#include "gpu/launch.cuh"
#include "ops/attention/flash_simt_products.cuh"

namespace headroom::attention::blocks::simt {

constexpr float log2e = 1.44269504f, ln2 = 0.693147181f;

// attention_fwd_simt — O = softmax(scale·Q Kᵀ) V and LSE of `rows` queries of one head.
//   reads   Q once, K and V once per block (from L2)     writes  O, LSE
//   numerics  fp32 throughout; the maximum moves only when outgrown by 2^8     limit  fp32 multiply-adds
template <class Tiles>
__global__ void __launch_bounds__(32 * Tiles::warps) attention_fwd_simt(const __grid_constant__ ForwardArgs a) {
  using S = Shape<Tiles>;
  constexpr float slack = 8;
  extern __shared__ __align__(16) float shared[];
  float* const q = shared;
  float* const k = q + S::rows * S::row_pitch;
  float* const v = k + S::columns * S::row_pitch;
  float* const p = v + S::columns * S::row_pitch;
  const Lane lane;
  const Place at = place_of(a.deal, a.heads);
  const long long row0 = (long long)at.tile * S::rows;
  const int kv_head = at.head / a.group, mine = lane.warp * 4 * S::high + lane.y;  // this lane's first row
  const TileSpan tiles = a.band.key_tiles(row0, S::rows, S::columns);
  const auto fetch_keys = [&](float* to, const Strided& from, int tile) {
    const long long key = (long long)tile * S::columns;
    fetch<float, S::columns, S::dim, S::threads>(to, rows_at<float>(from, at.batch, kv_head, key), from.row,
                                                 int(min((long long)S::columns, a.band.len_k - key)), a.head_dim, a.wide);
    warp::copies_commit();
  };

  float o[S::high][S::deep], maximum[S::high], sum[S::high];
#pragma unroll
  for (int i = 0; i < S::high; ++i) {
    maximum[i] = -INFINITY, sum[i] = 0;
#pragma unroll
    for (int c = 0; c < S::deep; ++c) o[i][c] = 0;
  }
  const float* const my_q = q + mine * S::row_pitch;
  float* const my_p = p + mine * S::p_pitch;
  const float scale = a.scale * log2e;

  if (tiles.begin < tiles.end) {
    fetch<float, S::rows, S::dim, S::threads>(q, rows_at<float>(a.q, at.batch, at.head, row0), a.q.row,
                                              int(min((long long)S::rows, a.band.len_q - row0)), a.head_dim, a.wide);
    fetch_keys(k, a.k, tiles.begin);
  }
  for (int tile = tiles.begin; tile < tiles.end; ++tile) {
    warp::copies_wait<0>();
    __syncthreads();  // K is there, and V of the tile before has been read
    fetch_keys(v, a.v, tile);
    float s[S::high][S::wide];
    rows_times_rows<S>(s, my_q, k + lane.x * S::row_pitch);
    const bool plain = tile >= tiles.plain_begin && tile < tiles.plain_end;
    bool moved = false;
    float factor[S::high];
#pragma unroll
    for (int i = 0; i < S::high; ++i) {
#pragma unroll
      for (int j = 0; j < S::wide; ++j) s[i][j] *= scale;
      if (!plain) {
        const Limits seen = limits_of<false>(a.band, row0 + mine + 4 * i, (long long)tile * S::columns);
#pragma unroll
        for (int j = 0; j < S::wide; ++j)
          if (!seen.sees(lane.x + 8 * j)) s[i][j] = -INFINITY;
      }
      float largest = s[i][0];
#pragma unroll
      for (int j = 1; j < S::wide; ++j) largest = fmaxf(largest, s[i][j]);
#pragma unroll
      for (int step = 2; step < 16; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
      if (!(largest - maximum[i] > slack)) largest = maximum[i];  // also when both are -inf
      const float reference = largest == -INFINITY ? 0.f : largest;
      factor[i] = exp2_fast(maximum[i] - reference);
      moved |= largest != maximum[i];
      maximum[i] = largest;
      sum[i] *= factor[i];
#pragma unroll
      for (int j = 0; j < S::wide; ++j) sum[i] += s[i][j] = exp2_fast(s[i][j] - reference);
    }
    share<S>(my_p + lane.x, s);
    if (__any_sync(~0u, moved)) {
#pragma unroll
      for (int i = 0; i < S::high; ++i)
#pragma unroll
        for (int c = 0; c < S::deep; ++c) o[i][c] *= factor[i];
    }
    warp::copies_wait<0>();
    __syncthreads();  // V is there, and K has been read
    if (tile + 1 < tiles.end) fetch_keys(k, a.k, tile + 1);
    scores_times_rows<S>(o, my_p, v + lane.x * S::lot);
  }

#pragma unroll
  for (int i = 0; i < S::high; ++i) {
    const long long row = row0 + mine + 4 * i;
#pragma unroll
    for (int step = 2; step < 16; step *= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], step);
    if (row >= a.band.len_q) continue;
    const bool empty = maximum[i] == -INFINITY;
    store_row<S>(rows_at<float>(a.o, at.batch, at.head, row), o[i], empty ? 0.f : 1 / sum[i], a.head_dim, a.wide);
    if (lane.x == 0)
      a.lse[((long long)at.batch * a.heads + at.head) * a.band.len_q + row] = empty ? -INFINITY : (maximum[i] + log2f(sum[i])) * ln2;
  }
}

// attention_bwd_simt — dQ of `rows` queries, or dK and dV (or one of them) of `rows` keys, scores recomputed.
//   S = A Bᵀ and dP = A' B'ᵀ with (A, A'; B, B') = (Q, dO; K, V) for dQ, (K, V; Q, dO) for dK and dV; P = 2^(S·c - LSE); dS = P ∘ (dP - Δ)
//   dQ or dK += dS B, dV += P B'     order  heads of a group, then tiles, one after another: the same bits on every run
template <class Tiles, Wants wants>
__global__ void __launch_bounds__(32 * Tiles::warps) attention_bwd_simt(const __grid_constant__ BackwardArgs a) {
  using S = Shape<Tiles>;
  constexpr bool of_keys = wants != Wants::dq, first = wants != Wants::dv, second = wants == Wants::dk_dv || wants == Wants::dv;
  extern __shared__ __align__(16) float shared[];
  float* const a1 = shared;
  float* const a2 = a1 + S::rows * S::row_pitch;
  float* const b1 = a2 + S::rows * S::row_pitch;
  float* const b2 = b1 + S::columns * S::row_pitch;
  float* const p = b2 + S::columns * S::row_pitch;
  const Lane lane;
  const Place at = place_of(a.deal, of_keys ? a.heads / a.group : a.heads);
  const long long row0 = (long long)at.tile * S::rows, rows = of_keys ? a.band.len_k : a.band.len_q,
                  columns = of_keys ? a.band.len_q : a.band.len_k;
  const int mine = lane.warp * 4 * S::high + lane.y;
  const int valid = int(min((long long)S::rows, rows - row0));
  const TileSpan tiles = of_keys ? a.band.row_tiles(row0, S::rows, S::columns) : a.band.key_tiles(row0, S::rows, S::columns);
  const auto fetch_tile = [&](float* to, const Strided& from, int head, int tile) {
    const long long column = (long long)tile * S::columns;
    fetch<float, S::columns, S::dim, S::threads>(to, rows_at<float>(from, at.batch, head, column), from.row,
                                                 int(min((long long)S::columns, columns - column)), a.head_dim, a.wide);
  };
  const auto statistics_of = [&](const float* x, int head) { return x + ((long long)at.batch * a.heads + head) * a.padded; };

  float d1[first ? S::high : 1][S::deep] = {}, d2[second ? S::high : 1][S::deep] = {};
  float lse[S::high], delta[S::high];
  if constexpr (!of_keys)
#pragma unroll
    for (int i = 0; i < S::high; ++i) {
      lse[i] = statistics_of(a.lse, at.head)[row0 + mine + 4 * i];
      delta[i] = statistics_of(a.delta, at.head)[row0 + mine + 4 * i];
    }
  if (tiles.begin < tiles.end) {
    const auto fetch_rows = [&](float* to, const Strided& from) {
      fetch<float, S::rows, S::dim, S::threads>(to, rows_at<float>(from, at.batch, at.head, row0), from.row, valid, a.head_dim, a.wide);
    };
    fetch_rows(a1, of_keys ? a.k : a.q);
    if constexpr (first) fetch_rows(a2, of_keys ? a.v : a.d_o);
  }
  const float scale = a.scale * log2e;
  float* const my_p = p + mine * S::p_pitch;

  for (int turn = 0; turn < (of_keys ? a.group : 1); ++turn) {
    const int head = of_keys ? at.head * a.group + turn : at.head / a.group;
    const Strided &from1 = of_keys ? a.q : a.k, &from2 = of_keys ? a.d_o : a.v;
    for (int tile = tiles.begin; tile < tiles.end; ++tile) {
      __syncthreads();  // the tile before has been read
      fetch_tile(b1, from1, head, tile);
      if constexpr (of_keys)
        fetch_statistics<float, S::columns, S::dim>(b1, statistics_of(a.lse, head) + tile * S::columns,
                                                    statistics_of(a.delta, head) + tile * S::columns);
      fetch_tile(b2, from2, head, tile);
      warp::copies_commit();
      warp::copies_wait<0>();
      __syncthreads();
      float s[S::high][S::wide];
      rows_times_rows<S>(s, a1 + mine * S::row_pitch, b1 + lane.x * S::row_pitch);
      const bool plain = tile >= tiles.plain_begin && tile < tiles.plain_end;
#pragma unroll
      for (int i = 0; i < S::high; ++i) {
#pragma unroll
        for (int j = 0; j < S::wide; ++j)
          s[i][j] = exp2_fast(fmaf(s[i][j], scale, -(of_keys ? statistics_at<float, S::dim>(b1, lane.x + 8 * j).x : lse[i])));
        if (!plain) {
          const Limits seen = limits_of<of_keys>(a.band, row0 + mine + 4 * i, (long long)tile * S::columns);
#pragma unroll
          for (int j = 0; j < S::wide; ++j)
            if (!seen.sees(lane.x + 8 * j)) s[i][j] = 0;
        }
      }
      if constexpr (second) {
        share<S>(my_p + lane.x, s);
        scores_times_rows<S>(d2, my_p, b2 + lane.x * S::lot);
      }
      if constexpr (first) {
        float dp[S::high][S::wide];
        rows_times_rows<S>(dp, a2 + mine * S::row_pitch, b2 + lane.x * S::row_pitch);
#pragma unroll
        for (int i = 0; i < S::high; ++i)
#pragma unroll
          for (int j = 0; j < S::wide; ++j)
            s[i][j] = s[i][j] == 0 ? 0.f : s[i][j] * (dp[i][j] - (of_keys ? statistics_at<float, S::dim>(b1, lane.x + 8 * j).y : delta[i]));
        share<S>(my_p + lane.x, s);
        scores_times_rows<S>(d1, my_p, b1 + lane.x * S::lot);
      }
    }
  }

#pragma unroll
  for (int i = 0; i < S::high; ++i) {
    const long long row = row0 + mine + 4 * i;
    if (row >= rows) continue;
    const Strided& to1 = of_keys ? a.dk : a.dq;
    if constexpr (first) store_row<S>(rows_at<float>(to1, at.batch, at.head, row), d1[i], a.scale, a.head_dim, a.wide);
    if constexpr (second) store_row<S>(rows_at<float>(a.dv, at.batch, at.head, row), d2[i], 1.f, a.head_dim, a.wide);
  }
}

template <class Tiles>
void start_forward(const ForwardArgs& a, cudaStream_t stream) {
  launch(stream, attention_fwd_simt<Tiles>, {dim3(unsigned(a.deal.tiles) * a.deal.pairs), 32 * Tiles::warps, forward_shared_bytes<Tiles>()},
         a);
}
template <class Tiles, Wants wants>
void start_backward(const BackwardArgs& a, cudaStream_t stream) {
  launch(stream, attention_bwd_simt<Tiles, wants>,
         {dim3(unsigned(a.deal.tiles) * a.deal.pairs), 32 * Tiles::warps, backward_shared_bytes<Tiles>()}, a);
}

}  // namespace headroom::attention::blocks::simt
