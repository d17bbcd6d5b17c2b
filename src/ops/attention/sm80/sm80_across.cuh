// sm80_across.cuh — backward of fp32 by products of tf32, with P and dS in shared memory: a warp forms few scores, and for the gradients takes all
// columns of its rows and a part of the head dimension. So sums of a large head fit registers, and what is read from shared memory is split less often.
#pragma once
#include "ops/attention/sm80/sm80_products.cuh"

namespace headroom::attention::blocks::sm80 {

// A warp's part of an m × n product: `down` warps share out its rows, the others its columns.
template <int warps, int down, int rows, int columns>
struct Part {
  static constexpr int high = rows / down / 16, wide = columns * down / warps;
  static constexpr int outputs = wide / 2, dim = wide;  // as of a Shape
  using T = float;
  static constexpr bool in_fours = true;
  static_assert(warps % down == 0 && rows % (16 * down) == 0 && wide % 16 == 0 && wide * warps == columns * down);
  int row = threadIdx.x / 32 % down * 16 * high, column = threadIdx.x / 32 / down * wide;  // its first ones
};

template <class Tiles>
struct AcrossShape {
  using T = float;
  static constexpr int dim = Tiles::dim, warps = Tiles::warps, threads = 32 * warps, rows = Tiles::rows, columns = Tiles::columns;
  static constexpr int row_pitch = pitch<T>(dim), p_pitch = pitch<T>(columns);
  static constexpr int steps_s = Tiles::steps_s, steps_p = Tiles::steps_p, steps_o = Tiles::steps_o;
  static constexpr int unroll = Tiles::unroll, groups = Tiles::groups;
  static constexpr bool rounds = false, in_parts = true, in_fours = true;
  using Scores = Part<warps, Tiles::down_s, rows, columns>;
  using Own = Part<warps, Tiles::down_o, rows, dim>;
  using Other = Part<warps, Tiles::down_q, columns, dim>;
};

// Position of column c: of each eight, the order is 0 2 4 6 1 3 5 7, in which times_rows_in_parts reads the other factor's rows.
__device__ __forceinline__ int column_at(int position) { return position / 8 * 8 + position % 4 * 2 + position / 4 % 2; }

// A warp's scores to shared memory; `p` points to their first.
template <class S, int high, int scores>
__device__ __forceinline__ void share_across(float* p, const float (&s)[high][scores]) {
  float* const to = p + threadIdx.x % 32 / 4 * S::p_pitch + threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < high; ++m)
#pragma unroll
    for (int i = 0; i < scores; ++i) to[(16 * m + i / 2 % 2 * 8) * S::p_pitch + i / 4 * 8 + i % 2 * 4] = s[m][i];
}

// o += the scores of this warp's rows, which all warps have written, times rows of `b`.
template <class S, int high, int outputs>
__device__ __forceinline__ void shared_times_rows(float (&o)[high][outputs], const float* p, const float* b) {
  const float* const from = p + threadIdx.x % 16 * S::p_pitch + threadIdx.x % 32 / 16 * 4;
  times_rows_in_parts<S, S::columns>(
      o, [&](std::uint32_t(&x)[4], int m, int k) { warp::load_blocks(x, from + 16 * m * S::p_pitch + k); }, b);
}

// This warp's part of dQ: Σ_row ds[row][column] · rows[row][d], times `factor`, is added to row `column` of `to`, of which `valid` exist.
template <class S>
__device__ __forceinline__ void add_shared_across_rows(const float* ds, const float* rows, float* to, long long stride, int valid,
                                                       int head_dim, float factor, bool wide, int* not_numbers) {
  using Other = typename S::Other;
  const Other mine;
  const int lane = threadIdx.x % 32;
  const float* const from = ds + lane % 4 * 2 * S::p_pitch + mine.row + lane / 4 * 2;
  float sum[Other::high][Other::outputs] = {};
  times_rows_in_parts<S, S::rows>(
      sum,
      [&](std::uint32_t(&x)[4], int m, int k) {
        const uint2 one = two_at(from + k * S::p_pitch + 16 * m), next = two_at(from + (k + 1) * S::p_pitch + 16 * m);
        x[0] = one.x, x[1] = one.y, x[2] = next.x, x[3] = next.y;
      },
      rows + mine.column);
  report_nan<S::more>(sum, not_numbers);
#pragma unroll
  for (int m = 0; m < Other::high; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int column = column_at(mine.row + 16 * m + lane / 4 * 2 + r);
      if (column < valid)
#pragma unroll
        for (int d = 0; d < Other::wide; d += 16) {
          const int first = mine.column + d + lane % 4 * 4;
          add_four(to + column * stride + first, four_of(sum[m], d, r) * factor, head_dim - first, wide);
        }
    }
}

// attention_bwd_across — as attention_bwd_simt; dK and dV of one kernel, at every head dim.
template <class Tiles, Wants wants, Asks asks>
__global__ void __launch_bounds__(32 * Tiles::warps, Tiles::at_once) attention_bwd_across(const __grid_constant__ BackwardArgs a) {
  using S = Asking<AcrossShape<Tiles>, asks>;
  using Scores = typename S::Scores;
  using Own = typename S::Own;
  constexpr bool more = S::more, of_keys = wants != Wants::dq, all = wants == Wants::all, second = of_keys;
  constexpr bool one_place = Tiles::one_place;  // P and dS in turns
  static_assert(!S::by_place && (wants == Wants::dq || wants == Wants::dk_dv || all));
  constexpr int high = Scores::high, scores = Scores::outputs;
  extern __shared__ __align__(16) unsigned char shared[];
  float* const a1 = reinterpret_cast<float*>(shared);
  float* const a2 = a1 + S::rows * S::row_pitch;
  float* const b1 = a2 + S::rows * S::row_pitch;
  float* const b2 = b1 + S::columns * S::row_pitch;
  float* const ds = b2 + S::columns * S::row_pitch;
  float* const p = one_place ? ds : ds + S::rows * S::p_pitch;
  const BackwardWalk<S, of_keys> walk(a);
  const Place at = walk.at;
  const Scores mine;
  const Own own;
  const int lane = threadIdx.x % 32;

  float d1[Own::high][Own::outputs] = {}, d2[second ? Own::high : 1][Own::outputs] = {};
  float lse[high][2], delta[high][2];
  if constexpr (!of_keys)
#pragma unroll
    for (int m = 0; m < high; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = walk.row0 + mine.row + 16 * m + lane / 4 + 8 * r;
        lse[m][r] = walk.statistics_of(a.lse, at.head)[row], delta[m][r] = walk.statistics_of(a.delta, at.head)[row];
      }
  const auto fetch_rows = [&] {
    walk.fetch_rows(a1, of_keys ? a.k : a.q, a.head_dim);
    walk.fetch_rows(a2, of_keys ? a.v : a.d_o, a.dim_v);
  };
  const bool capped = more && a.cap != 0;
  const float scale = capped ? a.scale / a.cap : a.scale * log2e, cap = a.cap * log2e;
  const int its_scores = mine.row * S::p_pitch + mine.column, own_scores = own.row * S::p_pitch;

  const auto gradients = [&](int step) {
    const int tile = walk.tile_of(step);
    const auto column_of = [&](int i) { return mine.column + i / 4 * 8 + lane % 4 * 2 + i % 2; };  // the column of a lane's score i
    float s[high][scores], dp[high][scores], slope[more ? high : 1][scores];
    rows_times_rows_in_parts<S, !of_keys, S::steps_s>(s, a1 + mine.row * S::row_pitch, b1 + mine.column * S::row_pitch);
    const bool plain = walk.plain(tile) && (!all || walk.valid == S::rows);
#pragma unroll
    for (int m = 0; m < high; ++m) {
#pragma unroll
      for (int i = 0; i < scores; ++i) {
        const float its_lse = of_keys ? statistics_at<float, S::dim>(b1, column_of(i)).x : lse[m][i / 2 % 2];
        if (capped) {
          const float bent = tanh_of(s[m][i] * scale);
          if constexpr (more) slope[m][i] = slope_of_tanh(bent);
          s[m][i] = probability(fmaf(cap, bent, -its_lse));
        } else {
          s[m][i] = probability(fmaf(s[m][i], scale, -its_lse));
        }
      }
      if (!plain)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = mine.row + 16 * m + lane / 4 + 8 * r;
          Limits seen = walk.seen_by(row, tile);
          if (all && row >= walk.valid) seen = {0, 0};  // P of keys that are none may be infinite, and must not meet dQ
#pragma unroll
          for (int i = 0; i < scores; ++i)
            if (i / 2 % 2 == r && !seen.sees(column_of(i))) s[m][i] = 0;
        }
    }
    if constexpr (second) share_across<S>(p + its_scores, s);
    rows_times_rows_in_parts<S, true, S::steps_p>(dp, a2 + mine.row * S::row_pitch, b2 + mine.column * S::row_pitch);
#pragma unroll
    for (int m = 0; m < high; ++m)
#pragma unroll
      for (int i = 0; i < scores; ++i) {
        float one = s[m][i] * (dp[m][i] - (of_keys ? statistics_at<float, S::dim>(b1, column_of(i)).y : delta[m][i / 2 % 2]));
        if constexpr (more)
          if (capped) one *= slope[m][i];
        s[m][i] = s[m][i] == 0 ? 0.f : one;
      }
    if constexpr (!second || !one_place) share_across<S>(ds + its_scores, s);
    __syncthreads();  // every warp's scores are there
    if constexpr (second) {
      shared_times_rows<S>(d2, p + own_scores, b2 + own.column);
      if constexpr (one_place) {
        __syncthreads();  // P has been read
        share_across<S>(ds + its_scores, s);
        __syncthreads();
      }
    }
    shared_times_rows<S>(d1, ds + own_scores, b1 + own.column);
  };
  walk.pass(b1, b2, fetch_rows, gradients, [&](int step) {
    if constexpr (all)
      add_shared_across_rows<S>(ds, a1, walk.dq_of(step), a.dq.row, walk.valid_columns(walk.tile_of(step)), a.head_dim, a.scale, a.wide,
                                a.not_numbers);
  });
  report_nan<more>(d1, a.not_numbers);
  if constexpr (second) report_nan<more>(d2, a.not_numbers);

#pragma unroll
  for (int m = 0; m < Own::high; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = walk.row0 + own.row + 16 * m + lane / 4 + 8 * r;
      if (row >= walk.rows) continue;
      const auto store = [&](const Strided& to, const float(&x)[Own::outputs], float factor, int dim) {
        store_row<Own>(rows_at<float>(to, at.batch, at.head, row) + own.column, x, r, factor, dim - own.column, a.wide);
      };
      store(of_keys ? a.dk : a.dq, d1[m], a.scale, a.head_dim);
      if constexpr (second) store(a.dv, d2[m], 1.f, a.dim_v);
    }
}

}  // namespace headroom::attention::blocks::sm80
