// flash_simt_products.cuh — the products of flash_simt, on the ordinary cores.
//
// A product is an SGEMM of one warp: 32 lanes stand as 4 × 8; lane (y, x) holds rows y, y + 4, … and columns x, x + 8, … of scores, and
// columns 4x … 4x+3, 4x+32 … of what is dim wide. Operands come from shared memory four values at a time; P passes through it, within a warp.
#pragma once
#include "gpu/mma.cuh"
#include "ops/attention/flash_blocks.cuh"
#include "ops/attention/flash_blocks_tiles.h"

namespace headroom::attention::blocks::simt {

template <class Tiles>
struct Shape {
  static constexpr int dim = Tiles::dim, warps = Tiles::warps, threads = 32 * warps, rows = Tiles::rows, columns = Tiles::columns;
  static constexpr int unroll = Tiles::unroll;
  static constexpr int high = rows / warps / 4, wide = columns / 8;  // a lane's scores
  static constexpr int deep = dim / 8, lot = deep < 4 ? deep : 4;    // a lane's columns of what is dim wide, so many side by side
  static constexpr int row_pitch = pitch<float>(dim), p_pitch = columns + 8;
};

// Neighbours share x, next but one neighbours share y: then half a warp's 16-byte reads are one pass, whichever side is read.
struct Lane {
  int warp = threadIdx.x / 32, y = threadIdx.x % 2 + threadIdx.x % 32 / 16 * 2, x = threadIdx.x / 2 % 8;
};

template <int n>
__device__ __forceinline__ void load(float (&to)[n], const float* from) {
  static_assert(n == 4 || n == 2);
  if constexpr (n == 4) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else {
    const float2 v = *reinterpret_cast<const float2*>(from);
    to[0] = v.x, to[1] = v.y;
  }
}

// s[i][j] = Σ_d a[row y + 4i][d] · b[row x + 8j][d]; a and b point to this lane's first rows.
template <class S>
__device__ __forceinline__ void rows_times_rows(float (&s)[S::high][S::wide], const float* a, const float* b) {
#pragma unroll
  for (int i = 0; i < S::high; ++i)
#pragma unroll
    for (int j = 0; j < S::wide; ++j) s[i][j] = 0;
#pragma unroll S::unroll
  for (int d = 0; d < S::dim; d += 4) {
    float y[S::wide][4];
#pragma unroll
    for (int j = 0; j < S::wide; ++j) load(y[j], b + 8 * j * S::row_pitch + d);
#pragma unroll
    for (int i = 0; i < S::high; ++i) {
      float x[4];
      load(x, a + 4 * i * S::row_pitch + d);
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int j = 0; j < S::wide; ++j) s[i][j] = fmaf(x[e], y[j][e], s[i][j]);
    }
  }
}

// o[i][c] += Σ_k p[row y + 4i][k] · b[row k][this lane's columns]; p points to this lane's first row, b to its first column.
template <class S>
__device__ __forceinline__ void scores_times_rows(float (&o)[S::high][S::deep], const float* p, const float* b) {
#pragma unroll S::unroll
  for (int k = 0; k < S::columns; k += 4) {
    float x[S::high][4];
#pragma unroll
    for (int i = 0; i < S::high; ++i) load(x[i], p + 4 * i * S::p_pitch + k);
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int c = 0; c < S::deep; c += S::lot) {
        float y[S::lot];
        load(y, b + (k + e) * S::row_pitch + c * 8);
#pragma unroll
        for (int i = 0; i < S::high; ++i)
#pragma unroll
          for (int f = 0; f < S::lot; ++f) o[i][c + f] = fmaf(x[i][e], y[f], o[i][c + f]);
      }
  }
}

template <class S>
__device__ __forceinline__ void share(float* p, const float (&s)[S::high][S::wide]) {  // with the lanes of this warp
  __syncwarp();
#pragma unroll
  for (int i = 0; i < S::high; ++i)
#pragma unroll
    for (int j = 0; j < S::wide; ++j) p[4 * i * S::p_pitch + 8 * j] = s[i][j];
  __syncwarp();
}

// Row y + 4i of this lane's warp, times `factor`.
template <class S>
__device__ __forceinline__ void store_row(float* to, const float (&o)[S::deep], float factor, int head_dim, bool wide) {
  const int first = Lane().x * S::lot;
#pragma unroll
  for (int c = 0; c < S::deep; c += S::lot) {
    const int column = first + c * 8;
    if (wide && S::lot == 4) {
      if (column < head_dim)
        *reinterpret_cast<float4*>(to + column) = make_float4(o[c] * factor, o[c + 1] * factor, o[c + 2] * factor, o[c + 3] * factor);
    } else {
#pragma unroll
      for (int f = 0; f < S::lot; ++f)
        if (column + f < head_dim) to[column + f] = o[c + f] * factor;
    }
  }
}

}  // namespace headroom::attention::blocks::simt
