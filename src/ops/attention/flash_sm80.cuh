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
  static constexpr int depth = warp::depth<T>, row_pitch = pitch<T>(dim);
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

// o += scores (columns are keys) times rows of `b`.
template <class S, class T = typename S::T>
__device__ __forceinline__ void scores_times_rows(float (&o)[S::high][S::outputs], const float (&s)[S::high][S::scores], const T* b) {
  const int lane = threadIdx.x % 32;
  const T* const from = sizeof(T) == 4 ? b + lane % 4 * 2 * S::row_pitch + lane / 4 : b + lane % 16 * S::row_pitch + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < S::columns; k += S::depth) {
    std::uint32_t x[S::high][4];
#pragma unroll
    for (int m = 0; m < S::high; ++m) operand<S>(x[m], s[m], k);
#pragma unroll
    for (int d = 0; d < S::dim; d += 16) {
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
      for (int m = 0; m < S::high; ++m) {
        warp::multiply<T>(&o[m][d / 2], x[m], y[0], y[1]);
        warp::multiply<T>(&o[m][d / 2 + 4], x[m], y[2], y[3]);
      }
    }
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
  const Place at = place_of(a.deal, a.heads);
  const long long row0 = (long long)at.tile * S::rows;
  const int kv_head = at.head / a.group, lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16 * S::high;
  const TileSpan tiles = a.band.key_tiles(row0, S::rows, S::columns);
  const auto fetch_keys = [&](T* to, const Strided& from, int tile) {
    const long long key = (long long)tile * S::columns;
    fetch<T, S::columns, S::dim, S::threads>(to, rows_at<T>(from, at.batch, kv_head, key), from.row,
                                             int(min((long long)S::columns, a.band.len_k - key)), a.head_dim, a.wide);
    warp::copies_commit();
  };

  float o[S::high][S::outputs] = {};
  Rows state[S::high];
  const float scale = a.scale * log2e;
  if (tiles.begin < tiles.end) {
    fetch<T, S::rows, S::dim, S::threads>(q, rows_at<T>(a.q, at.batch, at.head, row0), a.q.row,
                                          int(min((long long)S::rows, a.band.len_q - row0)), a.head_dim, a.wide);
    fetch_keys(k, a.k, tiles.begin);
  }
  for (int tile = tiles.begin; tile < tiles.end; ++tile) {
    warp::copies_wait<0>();
    __syncthreads();  // K is there, and V of the tile before has been read
    fetch_keys(v, a.v, tile);
    float s[S::high][S::scores];
    rows_times_rows<S>(s, q + warp_row * S::row_pitch, k);
    const bool plain = tile >= tiles.plain_begin && tile < tiles.plain_end;
#pragma unroll
    for (int m = 0; m < S::high; ++m) {
      if (!plain) {
        int first[2], end[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const Limits seen = limits_of<false>(a.band, row0 + warp_row + 16 * m + lane / 4 + 8 * r, (long long)tile * S::columns);
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
    if (tile + 1 < tiles.end) fetch_keys(k, a.k, tile + 1);
    scores_times_rows<S>(o, s, v);
  }

#pragma unroll
  for (int m = 0; m < S::high; ++m) {
    const auto result = state[m].finish(scale);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const long long row = row0 + warp_row + 16 * m + lane / 4 + 8 * r;
      if (row >= a.band.len_q) continue;
      store_row<S>(rows_at<T>(a.o, at.batch, at.head, row), o[m], r, result.inverse[r], a.head_dim, a.wide);
      if (lane % 4 == 0) a.lse[((long long)at.batch * a.heads + at.head) * a.band.len_q + row] = result.lse[r];
    }
  }
}

// attention_bwd_sm80 — dQ of `rows` queries, or dK and dV (or one of them) of `rows` keys, scores recomputed.
//   S = A Bᵀ and dP = A' B'ᵀ with (A, A'; B, B') = (Q, dO; K, V) for dQ, (K, V; Q, dO) for dK and dV; P = 2^(S·c - LSE); dS = P ∘ (dP - Δ)
//   dQ or dK += dS B, dV += P B'     order  heads of a group, then tiles, one after another: the same bits on every run
template <class Tiles, Wants wants>
__global__ void __launch_bounds__(32 * Tiles::warps) attention_bwd_sm80(const __grid_constant__ BackwardArgs a) {
  using S = Shape<Tiles>;
  using T = typename S::T;
  constexpr bool of_keys = wants != Wants::dq, first = wants != Wants::dv, second = wants == Wants::dk_dv || wants == Wants::dv;
  extern __shared__ __align__(16) unsigned char shared[];
  T* const a1 = reinterpret_cast<T*>(shared);
  T* const a2 = a1 + S::rows * S::row_pitch;
  T* const b1 = a2 + S::rows * S::row_pitch;
  T* const b2 = b1 + S::columns * S::row_pitch;
  float* const statistics = reinterpret_cast<float*>(b2 + S::columns * S::row_pitch);  // of_keys: LSE and Δ of the tile's queries
  const Place at = place_of(a.deal, of_keys ? a.heads / a.group : a.heads);
  const long long row0 = (long long)at.tile * S::rows, rows = of_keys ? a.band.len_k : a.band.len_q,
                  columns = of_keys ? a.band.len_q : a.band.len_k;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16 * S::high;
  const int valid = int(min((long long)S::rows, rows - row0));
  const TileSpan tiles = of_keys ? a.band.row_tiles(row0, S::rows, S::columns) : a.band.key_tiles(row0, S::rows, S::columns);
  const auto fetch_tile = [&](T* to, const Strided& from, int head, int tile) {
    const long long column = (long long)tile * S::columns;
    fetch<T, S::columns, S::dim, S::threads>(to, rows_at<T>(from, at.batch, head, column), from.row,
                                             int(min((long long)S::columns, columns - column)), a.head_dim, a.wide);
  };
  const auto statistics_of = [&](const float* x, int head) { return x + ((long long)at.batch * a.heads + head) * a.padded; };

  float d1[first ? S::high : 1][S::outputs] = {}, d2[second ? S::high : 1][S::outputs] = {};
  float lse[S::high][2], delta[S::high][2];
  if constexpr (!of_keys)
#pragma unroll
    for (int m = 0; m < S::high; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const long long row = row0 + warp_row + 16 * m + lane / 4 + 8 * r;
        lse[m][r] = statistics_of(a.lse, at.head)[row], delta[m][r] = statistics_of(a.delta, at.head)[row];
      }
  if (tiles.begin < tiles.end) {
    const auto fetch_rows = [&](T* to, const Strided& from) {
      fetch<T, S::rows, S::dim, S::threads>(to, rows_at<T>(from, at.batch, at.head, row0), from.row, valid, a.head_dim, a.wide);
    };
    fetch_rows(a1, of_keys ? a.k : a.q);
    if constexpr (first) fetch_rows(a2, of_keys ? a.v : a.d_o);
  }
  const float scale = a.scale * log2e;

  for (int turn = 0; turn < (of_keys ? a.group : 1); ++turn) {
    const int head = of_keys ? at.head * a.group + turn : at.head / a.group;
    const Strided &from1 = of_keys ? a.q : a.k, &from2 = of_keys ? a.d_o : a.v;
    for (int tile = tiles.begin; tile < tiles.end; ++tile) {
      __syncthreads();  // the tile before has been read
      fetch_tile(b1, from1, head, tile);
      if constexpr (of_keys)
        fetch_statistics<S::columns>(statistics, statistics_of(a.lse, head) + tile * S::columns,
                                     statistics_of(a.delta, head) + tile * S::columns);
      fetch_tile(b2, from2, head, tile);
      warp::copies_commit();
      warp::copies_wait<0>();
      __syncthreads();
      float s[S::high][S::scores];
      rows_times_rows<S>(s, a1 + warp_row * S::row_pitch, b1);
      const bool plain = tile >= tiles.plain_begin && tile < tiles.plain_end;
      const auto column_of = [&](int i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; };  // of a lane's score i
#pragma unroll
      for (int m = 0; m < S::high; ++m) {
#pragma unroll
        for (int i = 0; i < S::scores; ++i)
          s[m][i] = exp2_fast(fmaf(s[m][i], scale, -(of_keys ? statistics[column_of(i)] : lse[m][i / 2 % 2])));
        if (!plain)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const Limits seen = limits_of<of_keys>(a.band, row0 + warp_row + 16 * m + lane / 4 + 8 * r, (long long)tile * S::columns);
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
            const float ds = s[m][i] * (dp[m][i] - (of_keys ? statistics[S::columns + column_of(i)] : delta[m][i / 2 % 2]));
            s[m][i] = s[m][i] == 0 ? 0.f : ds;
          }
        scores_times_rows<S>(d1, s, b1);
      }
    }
  }

#pragma unroll
  for (int m = 0; m < S::high; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const long long row = row0 + warp_row + 16 * m + lane / 4 + 8 * r;
      if (row >= rows) continue;
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
  launch(stream, attention_bwd_sm80<Tiles, wants>,
         {dim3(unsigned(a.deal.tiles) * a.deal.pairs), 32 * Tiles::warps, backward_shared_bytes<Tiles>()}, a);
}

}  // namespace headroom::attention::blocks::sm80
