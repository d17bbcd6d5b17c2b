// flash_blocks.cuh — what the kernels of flash_simt and flash_sm80 have in common: who works on what, tiles on their way into shared memory.
#pragma once
#include "gpu/mma_sm80.cuh"
#include "ops/attention/flash_blocks.h"

namespace headroom::attention::blocks {

struct Place {
  int tile, batch, head;
};
__device__ __forceinline__ Place place_of(const Deal& g, int heads) {
  const int b = blockIdx.x, tile = g.order == Order::by_head ? b % g.tiles : b / g.pairs;
  const int pair = g.order == Order::by_head ? b / g.tiles : b % g.pairs;
  return {g.order == Order::last_tiles_first ? g.tiles - 1 - tile : tile, pair / heads, pair % heads};
}

template <class T>
__device__ __forceinline__ T* rows_at(const Strided& r, int batch, int head, long long row) {
  return static_cast<T*>(r.data) + batch * r.batch + head * r.head + row * r.row;
}

// Starts to fetch `rows` rows of a tile, of which `valid` exist; the rest, and columns from head_dim on, become zeros.
template <class T, int rows, int dim, int threads>
__device__ __forceinline__ void fetch(T* to, const T* from, long long stride, int valid, int head_dim, bool wide) {
  if (wide) {
    constexpr int per = 16 / sizeof(T), chunks = dim / per, together = threads / chunks;
    static_assert(threads % chunks == 0 && (rows % together == 0 || rows < together));
    const int row = threadIdx.x / chunks, column = threadIdx.x % chunks * per;
#pragma unroll
    for (int r = 0; r < rows; r += together) {
      const bool in = row + r < valid && column < head_dim;
      if (rows >= together || row < rows)
        warp::copy_16(to + (row + r) * pitch<T>(dim) + column, in ? from + (row + r) * stride + column : from, in);
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * dim; i += threads) {
      const int row = i / dim, column = i % dim;
      to[row * pitch<T>(dim) + column] = row < valid && column < head_dim ? from[row * stride + column] : T(0.f);
    }
  }
}

// Row statistics of `columns` queries, padded in memory.
template <int columns>
__device__ __forceinline__ void fetch_statistics(float* to, const float* lse, const float* delta) {
  const int i = threadIdx.x * 4;
  if (i < columns) warp::copy_16(to + i, lse + i, true), warp::copy_16(to + columns + i, delta + i, true);
}

// The columns of a tile that one of this side's rows sees: [first, end), counted from the tile's first column.
struct Limits {
  int first, end;
  __device__ __forceinline__ bool sees(int column) const { return column >= first && column < end; }
};
template <bool rows_are_keys>
__device__ __forceinline__ Limits limits_of(const Band& band, long long row, long long first_column) {
  const long long first = (rows_are_keys ? band.first_row(row) : band.first(row)) - first_column;
  const long long end = (rows_are_keys ? band.last_row(row) : band.last(row)) - first_column;
  const auto bounded = [](long long x) { return int(x < -1 ? -1 : x > (1 << 20) ? 1 << 20 : x); };
  return {bounded(first), bounded(end)};
}

}  // namespace headroom::attention::blocks
