// simt_products.cuh — the products of flash_simt, on the ordinary cores.
//
// A product is an SGEMM of one warp: 32 lanes stand as 4 × 8; lane (y, x) holds rows 4y … 4y+3, 4y+16 … and columns x, x + 8, … of scores,
// and columns 4x … 4x+3, 4x+32 … of what is dim wide. Operands come from shared memory four values at a time; P passes through it. The
// block's own rows lie there turned, [dim][row], so that of every product's factors one has the summed dimension along memory and one the
// other: then the compiler can give sums and factors to the two banks of registers once and for all.
#pragma once
#include "gpu/mma.cuh"
#include "ops/attention/sm80/blocks.cuh"
#include "ops/attention/sm80/blocks_tiles.h"

namespace headroom::attention::blocks::simt {

template <class Tiles>
struct Shape {
  using T = float;
  static constexpr int dim = Tiles::dim, warps = Tiles::warps, threads = 32 * warps, rows = Tiles::rows, columns = Tiles::columns;
  static constexpr int unroll = Tiles::unroll;
  static constexpr bool rounds = false;
  static constexpr int high = rows / warps / 4, wide = columns / 8;  // a lane's scores
  static constexpr int deep = dim / 8;                               // a lane's columns of what is dim wide
  static constexpr int row_pitch = pitch<float>(dim), turned_pitch = pitch<float>(rows), p_pitch = pitch<float>(columns);
  static constexpr int together = high < 4 ? high : 4;  // a lane's neighbouring rows
  __device__ __forceinline__ static constexpr int row(int i) { return i / together * 4 * together + i % together; }
};

// Neighbours share x, next but one neighbours share y: then half a warp's 16-byte reads are one pass, whichever side is read.
struct Lane {
  int warp = threadIdx.x / 32, y = threadIdx.x % 2 + threadIdx.x % 32 / 16 * 2, x = threadIdx.x / 2 % 8;
};
template <class S>
__device__ __forceinline__ int first_row(const Lane& lane) {  // first row of the lane in the block
  return lane.warp * 4 * S::high + lane.y * S::together;
}

template <int n>
__device__ __forceinline__ void load(float (&to)[n], const float* from) {
  if constexpr (n == 4) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else if constexpr (n == 2) {
    const float2 v = *reinterpret_cast<const float2*>(from);
    to[0] = v.x, to[1] = v.y;
  } else {
    static_assert(n == 1);
    to[0] = *from;
  }
}

// c[h][w] += Σ_k held(h)[k] · flowing(k, w)[0]: both give addresses; of `held`, k lies along memory, of `flowing`, w, so many `together`.
// Rows of sums are walked there and back, so that an instruction shares a factor with the one before: the registers give two of three operands
// a cycle, and the shared one is kept.
template <class S, int depth, int together, int H, int W, class Held, class Flowing>
__device__ __forceinline__ void multiply(float (&c)[H][W], Held held, Flowing flowing) {
#pragma unroll S::unroll
  for (int k = 0; k < depth; k += 4) {
    float x[H][4];
#pragma unroll
    for (int h = 0; h < H; ++h) load(x[h], held(h) + k);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float y[W / together][together];
#pragma unroll
      for (int w = 0; w < W; w += together) load(y[w / together], flowing(k + e, w));
#pragma unroll
      for (int h = 0; h < H; ++h)
#pragma unroll
        for (int turn = 0; turn < W; ++turn) {
          const int w = h % 2 ? W - 1 - turn : turn;
          c[h][w] = fmaf(x[h][e], y[w / together][w % together], c[h][w]);
        }
    }
  }
}

// s[j][i] = Σ_d rows[row i][d] · tile[column j][d], rows turned; both point to the whole block's.
template <class S>
__device__ __forceinline__ void rows_times_rows(float (&s)[S::wide][S::high], const float* rows, const float* tile) {
  const Lane lane;
  const float *const mine = rows + first_row<S>(lane), *const column = tile + lane.x * S::row_pitch;
#pragma unroll
  for (int j = 0; j < S::wide; ++j)
#pragma unroll
    for (int i = 0; i < S::high; ++i) s[j][i] = 0;
  multiply<S, S::dim, S::together>(
      s, [&](int j) { return column + 8 * j * S::row_pitch; }, [&](int d, int i) { return mine + d * S::turned_pitch + S::row(i); });
}

// o[i][c] += Σ_k p[row i][column k] · tile[column k][c]
template <class S>
__device__ __forceinline__ void scores_times_rows(float (&o)[S::high][S::deep], const float* p, const float* tile) {
  const Lane lane;
  const float *const mine = p + first_row<S>(lane) * S::p_pitch, *const first = tile + 4 * lane.x;
  multiply<S, S::columns, 4>(
      o, [&](int i) { return mine + S::row(i) * S::p_pitch; }, [&](int k, int c) { return first + k * S::row_pitch + 8 * c; });
}

// The scores of a whole tile, which all warps have written, times the block's rows, turned: Σ_row p[row][column] · rows[row][d] is added, times
// `factor`, to row `column` of `to`, of which `valid` exist. Warps share out columns and, past 64, parts of dim.
template <class S>
__device__ __forceinline__ void add_scores_across_rows(const float* p, const float* rows, float* to, long long stride, int valid,
                                                       int head_dim, float factor, int* not_numbers) {
  constexpr int part = S::dim < 64 ? S::dim : 64, parts = S::dim / part, deep = part / 8;
  static_assert(S::warps == parts * S::columns / 16);
  const Lane lane;
  const int column = lane.warp / parts * 16 + 4 * lane.y, d = lane.warp % parts * part + lane.x;
  float sum[deep][4] = {};
  multiply<S, S::rows, 4>(
      sum, [&](int c) { return rows + (d + 8 * c) * S::turned_pitch; }, [&](int row, int) { return p + row * S::p_pitch + column; });
  report_nan<S::more>(sum, not_numbers);
#pragma unroll
  for (int w = 0; w < 4; ++w)
#pragma unroll
    for (int c = 0; c < deep; ++c)  // eight lanes' values are 32 bytes in a row
      if (column + w < valid && d + 8 * c < head_dim) atomicAdd(to + (column + w) * stride + d + 8 * c, sum[c][w] * factor);
}

template <class S>
__device__ __forceinline__ void share(float* p, const float (&s)[S::wide][S::high]) {  // with the lanes of this warp
  const Lane lane;
  float* const mine = p + first_row<S>(lane) * S::p_pitch + lane.x;
  __syncwarp();
#pragma unroll
  for (int j = 0; j < S::wide; ++j)
#pragma unroll
    for (int i = 0; i < S::high; ++i) mine[S::row(i) * S::p_pitch + 8 * j] = s[j][i];
  __syncwarp();
}

// The block's own rows, of which `valid` exist, turned.
template <class S>
__device__ __forceinline__ void fetch_turned(float* to, const float* from, long long stride, int valid, int head_dim) {
#pragma unroll 8
  for (int i = threadIdx.x; i < S::rows * S::dim; i += S::threads) {
    const int row = i / S::dim, d = i % S::dim;
    to[d * S::turned_pitch + row] = row < valid && d < head_dim ? from[row * stride + d] : 0.f;
  }
}

// A row of this lane's, times `factor`.
template <class S>
__device__ __forceinline__ void store_row(float* to, const float (&o)[S::deep], float factor, int head_dim, bool wide) {
  const int first = 4 * Lane().x;
#pragma unroll
  for (int c = 0; c < S::deep; c += 4) {
    const int column = first + c * 8;
    if (wide) {
      if (column < head_dim)
        *reinterpret_cast<float4*>(to + column) = make_float4(o[c] * factor, o[c + 1] * factor, o[c + 2] * factor, o[c + 3] * factor);
    } else {
#pragma unroll
      for (int f = 0; f < 4; ++f)
        if (column + f < head_dim) to[column + f] = o[c + f] * factor;
    }
  }
}

// Which of this lane's scores dropout drops: bit j of dropped[i] is s[j][i]. `row`: the lane's first; `column`: the tile's.
template <class S, bool rows_are_keys>
__device__ __forceinline__ void draw_dropped(unsigned (&dropped)[S::high], const HeadDraws& draws, unsigned below, int row, int column) {
  static_assert(S::wide % 2 == 0 && S::wide <= 32);
  const Lane lane;
  column += lane.x;
#pragma unroll
  for (int i = 0; i < S::high; ++i) {
    dropped[i] = 0;
    const int own = row + S::row(i);
    const bool second = own & 8;  // the second of a counter's two rows, or keys, here
    const auto note = [&](int j, unsigned draw) { dropped[i] |= unsigned(draw % draw_steps < below) << j; };
#pragma unroll
    for (int t = 0; t < S::wide; t += 2) {
      const TwoWords x = rows_are_keys ? draws.at(column + 8 * t, own) : draws.at(own, column + 8 * t);
      if constexpr (rows_are_keys) {
        const unsigned both = second ? x.word[1] : x.word[0];
        note(t, both);
        note(t + 1, both >> 16);
      } else {
        note(t, x.word[0] >> (second ? 16 : 0));
        note(t + 1, x.word[1] >> (second ? 16 : 0));
      }
    }
  }
}

}  // namespace headroom::attention::blocks::simt
