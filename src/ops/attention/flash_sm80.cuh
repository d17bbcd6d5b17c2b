// flash_sm80.cuh — attention by the warp's matrix instruction: bf16, fp16, and fp32 storage multiplied as tf32 (T = float).
//
// A warp has 16 or 32 rows of the block's. Scores stay in its registers: S turns into P, and P (or dS) is already the left operand of
// the next product. In tf32 that product takes the keys of each eight in the order 0 2 4 6 1 3 5 7, on both sides alike.
#pragma once
#include "gpu/launch.cuh"
#include "ops/attention/flash_blocks.cuh"
#include "ops/attention/flash_blocks_tiles.h"
#include "ops/attention/softmax.cuh"

namespace headroom::attention::blocks::sm80 {

constexpr float log2e = 1.44269504f;

template <class Tiles>
struct Shape {
  using T = typename Tiles::T;
  static constexpr int dim = Tiles::dim, warps = Tiles::warps, threads = 32 * warps, rows = Tiles::rows, columns = Tiles::columns;
  static constexpr int high = rows / warps / 16;                 // blocks of 16 rows that a warp has
  static constexpr int scores = columns / 2, outputs = dim / 2;  // a lane's part of 16 rows
  static constexpr int depth = warp::depth<T>, row_pitch = pitch<T>(dim), p_pitch = pitch<T>(columns);
  static_assert(rows % (16 * warps) == 0 && columns % 16 == 0);
};

// s = rows of `a` times rows of `b`, transposed; a points to the warp's first row.
template <class S, class T = typename S::T>
__device__ __forceinline__ void rows_times_rows(float (&s)[S::high][S::scores], const T* a, const T* b) {
  const int lane = threadIdx.x % 32, half = 8 / (sizeof(T) / 2);  // columns in 16 bytes
  const T* const from_a = a + lane % 16 * S::row_pitch + lane / 16 * half;
  const T* const from_b = b + (lane / 16 * 8 + lane % 8) * S::row_pitch + lane / 8 % 2 * half;
#pragma unroll
  for (int m = 0; m < S::high; ++m)
#pragma unroll
    for (int i = 0; i < S::scores; ++i) s[m][i] = 0;
#pragma unroll
  for (int d = 0; d < S::dim; d += S::depth) {
    std::uint32_t x[S::high][4];
#pragma unroll
    for (int m = 0; m < S::high; ++m) warp::load_blocks(x[m], from_a + 16 * m * S::row_pitch + d), warp::round<T>(x[m]);
#pragma unroll
    for (int j = 0; j < S::columns; j += 16) {
      std::uint32_t y[4];
      warp::load_blocks(y, from_b + j * S::row_pitch + d), warp::round<T>(y);
#pragma unroll
      for (int m = 0; m < S::high; ++m) {
        warp::multiply<T>(&s[m][j / 2], x[m], y[0], y[1]);
        warp::multiply<T>(&s[m][j / 2 + 4], x[m], y[2], y[3]);
      }
    }
  }
}

// The scores of columns [k, k + depth) as a left operand, rounded to T.
template <class S, class T = typename S::T>
__device__ __forceinline__ void operand(std::uint32_t (&x)[4], const float (&s)[S::scores], int k) {
  const float* from = s + k / 2;
  if constexpr (sizeof(T) == 4) {
    x[0] = __float_as_uint(from[0]), x[1] = __float_as_uint(from[2]), x[2] = __float_as_uint(from[1]), x[3] = __float_as_uint(from[3]);
    warp::round<T>(x);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = warp::pair<T>(from[2 * i], from[2 * i + 1]);
  }
}

// o += A times rows of `b`, of which there are `summed`; `load` gives the left operand of 16 rows and of `depth` columns from k on.
template <class S, int summed, int high, int outputs, class Load, class T = typename S::T>
__device__ __forceinline__ void times_rows(float (&o)[high][outputs], Load load, const T* b) {
  const int lane = threadIdx.x % 32;
  const T* const from = sizeof(T) == 4 ? b + lane % 4 * 2 * S::row_pitch + lane / 4 : b + lane % 16 * S::row_pitch + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < summed; k += S::depth) {
    std::uint32_t x[high][4];
#pragma unroll
    for (int m = 0; m < high; ++m) load(x[m], m, k);
#pragma unroll
    for (int d = 0; d < 2 * outputs; d += 16) {
      std::uint32_t y[4];
      const T* const at = from + k * S::row_pitch + d;
      if constexpr (sizeof(T) == 4) {
        const auto bits = [](const T* value) { return *reinterpret_cast<const std::uint32_t*>(value); };
        y[0] = bits(at), y[1] = bits(at + S::row_pitch), y[2] = bits(at + 8), y[3] = bits(at + S::row_pitch + 8);
        warp::round<T>(y);
      } else {
        warp::load_blocks_transposed(y, at);
      }
#pragma unroll
      for (int m = 0; m < high; ++m) {
        warp::multiply<T>(&o[m][d / 2], x[m], y[0], y[1]);
        warp::multiply<T>(&o[m][d / 2 + 4], x[m], y[2], y[3]);
      }
    }
  }
}
template <class S, class T = typename S::T>
__device__ __forceinline__ void scores_times_rows(float (&o)[S::high][S::outputs], const float (&s)[S::high][S::scores], const T* b) {
  times_rows<S, S::columns>(
      o, [&](std::uint32_t(&x)[4], int m, int k) { operand<S>(x, s[m], k); }, b);
}

// The warp's scores to shared memory, [row][column], as operands need them.
template <class S, class T = typename S::T>
__device__ __forceinline__ void share(T* p, const float (&s)[S::high][S::scores]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < S::high; ++m)
#pragma unroll
    for (int i = 0; i < S::scores; i += 2) {
      T* const to = p + (16 * m + lane / 4 + i / 2 % 2 * 8) * S::p_pitch + i / 4 * 8 + lane % 4 * 2;
      if constexpr (sizeof(T) == 4)
        *reinterpret_cast<float2*>(to) = {s[m][i], s[m][i + 1]};
      else
        *reinterpret_cast<std::uint32_t*>(to) = warp::pair<T>(s[m][i], s[m][i + 1]);
    }
}

// The scores of a whole tile, which all warps have written, times the block's rows: Σ_row p[row][column] · rows[row][d] is added, times `factor`,
// to row `column` of `to`, of which `valid` exist. Warps share out columns by 16 and, where these are too few, parts of dim.
template <class S, class T = typename S::T>
__device__ __forceinline__ void add_scores_across_rows(const T* p, const T* rows, float* to, long long stride, int valid, int head_dim,
                                                       float factor) {
  constexpr int parts = 16 * S::warps / S::columns, part = S::dim / parts;
  static_assert(parts >= 1 && part % 16 == 0);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = warp / parts * 16, d0 = warp % parts * part;
  const T* const from = sizeof(T) == 4 ? p + lane % 4 * 2 * S::p_pitch + column + lane / 4
                                       : p + (lane / 16 * 8 + lane % 8) * S::p_pitch + column + lane / 8 % 2 * 8;
  float sum[1][part / 2] = {};
  times_rows<S, S::rows>(
      sum,
      [&](std::uint32_t(&x)[4], int, int k) {
        const T* const at = from + k * S::p_pitch;
        if constexpr (sizeof(T) == 4) {
          const auto bits = [](const T* value) { return *reinterpret_cast<const std::uint32_t*>(value); };
          x[0] = bits(at), x[1] = bits(at + 8), x[2] = bits(at + S::p_pitch), x[3] = bits(at + S::p_pitch + 8);
          warp::round<T>(x);
        } else {
          warp::load_blocks_transposed(x, at);
        }
      },
      rows + d0);
#pragma unroll
  for (int i = 0; i < part / 2; ++i) {
    const int row = column + lane / 4 + i / 2 % 2 * 8, d = d0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
    if (row < valid && d < head_dim) atomicAdd(to + row * stride + d, sum[0][i] * factor);
  }
}

// One row (r = 0: g, r = 1: g + 8) of 16, times `factor`, rounded.
template <class S, class T = typename S::T>
__device__ __forceinline__ void store_row(T* to, const float (&o)[S::outputs], int r, float factor, int head_dim, bool wide) {
#pragma unroll
  for (int d = 0; d < S::dim; d += 8) {
    const int column = d + threadIdx.x % 4 * 2;
    const float x = o[d / 2 + 2 * r] * factor, y = o[d / 2 + 2 * r + 1] * factor;
    if (wide) {
      if (column >= head_dim) continue;
      if constexpr (sizeof(T) == 4)
        *reinterpret_cast<float2*>(to + column) = {x, y};
      else
        *reinterpret_cast<std::uint32_t*>(to + column) = warp::pair<T>(x, y);
    } else {
      if (column < head_dim) to[column] = T(x);
      if (column + 1 < head_dim) to[column + 1] = T(y);
    }
  }
}

// attention_fwd_sm80 — O = softmax(scale·Q Kᵀ) V and LSE of `rows` queries of one head.
//   reads   Q once, K and V once per block (from L2)     writes  O, LSE
//   numerics  fp32 scores and sums; P rounded to T (or tf32) as an operand     needs  scale > 0     limit  shared memory, then matrix units
template <class Tiles>
__global__ void __launch_bounds__(32 * Tiles::warps) attention_fwd_sm80(const __grid_constant__ ForwardArgs a) {
  using S = Shape<Tiles>;
  using T = typename S::T;
  extern __shared__ __align__(16) unsigned char shared[];
  T* const q = reinterpret_cast<T*>(shared);
  T* const k = q + S::rows * S::row_pitch;
  T* const v = k + S::columns * S::row_pitch;
  const Walk<S, false> walk(a);
  const Place at = walk.at;
  const int kv_head = at.head / a.group, lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16 * S::high;
  const auto fetch_keys = [&](T* to, const Strided& from, int tile) {
    walk.fetch_tile(to, from, kv_head, tile);
    warp::copies_commit();
  };

  float o[S::high][S::outputs] = {};
  Rows state[S::high];
  const float scale = a.scale * log2e;
  if (walk.tiles.begin < walk.tiles.end) {
    walk.fetch_rows(q, a.q);
    fetch_keys(k, a.k, walk.tiles.begin);
  }
  for (int tile = walk.tiles.begin; tile < walk.tiles.end; ++tile) {
    warp::copies_wait<0>();
    __syncthreads();  // K is there, and V of the tile before has been read
    fetch_keys(v, a.v, tile);
    float s[S::high][S::scores];
    rows_times_rows<S>(s, q + warp_row * S::row_pitch, k);
#pragma unroll
    for (int m = 0; m < S::high; ++m) {
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
    warp::copies_wait<0>();
    __syncthreads();  // V is there, and K has been read
    if (tile + 1 < walk.tiles.end) fetch_keys(k, a.k, tile + 1);
    scores_times_rows<S>(o, s, v);
  }

#pragma unroll
  for (int m = 0; m < S::high; ++m) {
    const auto result = state[m].finish(scale);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const long long row = walk.row0 + warp_row + 16 * m + lane / 4 + 8 * r;
      if (row >= a.band.len_q) continue;
      store_row<S>(rows_at<T>(a.o, at.batch, at.head, row), o[m], r, result.inverse[r], a.head_dim, a.wide);
      if (lane % 4 == 0) a.lse[((long long)at.batch * a.heads + at.head) * a.band.len_q + row] = result.lse[r];
    }
  }
}

// attention_bwd_sm80 — as attention_bwd_simt.
template <class Tiles, Wants wants>
__global__ void __launch_bounds__(32 * Tiles::warps) attention_bwd_sm80(const __grid_constant__ BackwardArgs a) {
  using S = Shape<Tiles>;
  using T = typename S::T;
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
        const long long row = walk.row0 + warp_row + 16 * m + lane / 4 + 8 * r;
        lse[m][r] = walk.statistics_of(a.lse, at.head)[row], delta[m][r] = walk.statistics_of(a.delta, at.head)[row];
      }
  if (walk.steps > 0) {
    walk.fetch_rows(a1, of_keys ? a.k : a.q);
    if constexpr (first) walk.fetch_rows(a2, of_keys ? a.v : a.d_o);
    walk.fetch_tiles(b1, b2, 0);
  }
  const float scale = a.scale * log2e;

  for (int step = 0; step < walk.steps; ++step) {
    const int tile = walk.tile_of(step);
    warp::copies_wait<0>();
    __syncthreads();  // the tile is there, and dS of the tile before has been read
    float s[S::high][S::scores];
    rows_times_rows<S>(s, a1 + warp_row * S::row_pitch, b1);
    const bool plain = walk.plain(tile) && (!all || walk.valid == S::rows);
    const auto column_of = [&](int i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; };  // of a lane's score i
#pragma unroll
    for (int m = 0; m < S::high; ++m) {
#pragma unroll
      for (int i = 0; i < S::scores; ++i)
        s[m][i] = exp2_fast(fmaf(s[m][i], scale, -(of_keys ? statistics_at<T, S::dim>(b1, column_of(i)).x : lse[m][i / 2 % 2])));
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
    if constexpr (second) scores_times_rows<S>(d2, s, b2);
    if constexpr (first) {
      float dp[S::high][S::scores];
      rows_times_rows<S>(dp, a2 + warp_row * S::row_pitch, b2);
#pragma unroll
      for (int m = 0; m < S::high; ++m)
#pragma unroll
        for (int i = 0; i < S::scores; ++i) {
          const float ds = s[m][i] * (dp[m][i] - (of_keys ? statistics_at<T, S::dim>(b1, column_of(i)).y : delta[m][i / 2 % 2]));
          s[m][i] = s[m][i] == 0 ? 0.f : ds;
        }
      if constexpr (all) share<S>(p + warp_row * S::p_pitch, s);
      scores_times_rows<S>(d1, s, b1);
    }
    __syncthreads();  // the tile has been read, and dS of every warp is there
    if (step + 1 < walk.steps) walk.fetch_tiles(b1, b2, step + 1);
    if constexpr (all) add_scores_across_rows<S>(p, a1, walk.dq_of(step), a.dq.row, walk.valid_columns(tile), a.head_dim, a.scale);
  }

#pragma unroll
  for (int m = 0; m < S::high; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const long long row = walk.row0 + warp_row + 16 * m + lane / 4 + 8 * r;
      if (row >= walk.rows) continue;
      const Strided& to1 = of_keys ? a.dk : a.dq;
      if constexpr (first) store_row<S>(rows_at<T>(to1, at.batch, at.head, row), d1[m], r, a.scale, a.head_dim, a.wide);
      if constexpr (second) store_row<S>(rows_at<T>(a.dv, at.batch, at.head, row), d2[m], r, 1.f, a.head_dim, a.wide);
    }
}

template <class Tiles>
void start_forward(const ForwardArgs& a, cudaStream_t stream) {
  launch(stream, attention_fwd_sm80<Tiles>, {dim3(unsigned(a.deal.tiles) * a.deal.pairs), 32 * Tiles::warps, forward_shared_bytes<Tiles>()},
         a);
}
template <class Tiles, Wants wants>
void start_backward(const BackwardArgs& a, cudaStream_t stream) {
  constexpr int bytes = wants == Wants::all ? fused_shared_bytes<Tiles>() : backward_shared_bytes<Tiles>();
  launch(stream, attention_bwd_sm80<Tiles, wants>, {dim3(unsigned(a.deal.tiles) * a.deal.pairs), 32 * Tiles::warps, bytes}, a);
}

}  // namespace headroom::attention::blocks::sm80
