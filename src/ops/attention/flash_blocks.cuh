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

// What this thread has fetched of a tile, once it has landed, becomes tf32, rounded to nearest: once, and not by every warp that multiplies it.
template <int rows, int dim, int threads>
__device__ __forceinline__ void round_fetched(float* tile, bool wide) {
  if (wide) {
    constexpr int chunks = dim / 4, together = threads / chunks;
    const int row = threadIdx.x / chunks, column = threadIdx.x % chunks * 4;
#pragma unroll
    for (int r = 0; r < rows; r += together) {
      if (rows < together && row >= rows) continue;
      uint4* const at = reinterpret_cast<uint4*>(tile + (row + r) * pitch<float>(dim) + column);
      const uint4 x = *at;
      *at = make_uint4(warp::round_bits(x.x), warp::round_bits(x.y), warp::round_bits(x.z), warp::round_bits(x.w));
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * dim; i += threads) {
      float& x = tile[i / dim * pitch<float>(dim) + i % dim];
      x = __uint_as_float(warp::round_bits(__float_as_uint(x)));
    }
  }
}

// LSE and Δ of a tile's queries ride in the 16 spare bytes behind each of its rows.
template <class T, int columns, int dim>
__device__ __forceinline__ void fetch_statistics(T* tile, const float* lse, const float* delta) {
  if (const int i = threadIdx.x; i < columns) {
    float* const to = reinterpret_cast<float*>(tile + i * pitch<T>(dim) + dim);
    warp::copy_4(to, lse + i), warp::copy_4(to + 1, delta + i);
  }
}
template <class T, int dim>
__device__ __forceinline__ float2 statistics_at(const T* tile, int column) {
  return *reinterpret_cast<const float2*>(tile + column * pitch<T>(dim) + dim);
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

// A block's way: `rows` rows of one head (queries, or keys of a key head) stay, and of the other side all tiles that one of them sees pass.
template <class S, bool rows_are_keys>
struct Walk {
  using T = typename S::T;
  Place at;
  const Band& band;
  long long row0, rows, columns;
  int valid, head_dim;  // so many of this block's rows exist
  bool wide;
  TileSpan tiles;

  template <class Args>
  __device__ __forceinline__ explicit Walk(const Args& a)
      : at(place_of(a.deal, rows_are_keys ? a.heads / a.group : a.heads)),
        band(a.band),
        row0((long long)at.tile * S::rows),
        rows(rows_are_keys ? band.len_k : band.len_q),
        columns(rows_are_keys ? band.len_q : band.len_k),
        valid(int(min((long long)S::rows, rows - row0))),
        head_dim(a.head_dim),
        wide(a.wide),
        tiles(rows_are_keys ? band.row_tiles(row0, S::rows, S::columns) : band.key_tiles(row0, S::rows, S::columns)) {}

  __device__ __forceinline__ static long long first_column(int tile) { return (long long)tile * S::columns; }
  __device__ __forceinline__ int valid_columns(int tile) const { return int(min((long long)S::columns, columns - first_column(tile))); }
  __device__ __forceinline__ bool plain(int tile) const { return tile >= tiles.plain_begin && tile < tiles.plain_end; }
  __device__ __forceinline__ Limits seen_by(int row, int tile) const {
    return limits_of<rows_are_keys>(band, row0 + row, first_column(tile));
  }
  __device__ __forceinline__ void fetch_rows(T* to, const Strided& from) const {  // and waits for them
    fetch<T, S::rows, S::dim, S::threads>(to, rows_at<T>(from, at.batch, at.head, row0), from.row, valid, head_dim, wide);
    warp::copies_commit();
    warp::copies_wait<0>();
    arrived<S::rows>(to);
  }
  template <int count>
  __device__ __forceinline__ void arrived(T* fetched) const {  // `count` rows that this thread helped to fetch
    if constexpr (S::rounds) round_fetched<count, S::dim, S::threads>(fetched, wide);
  }
  __device__ __forceinline__ void fetch_tile(T* to, const Strided& from, int head, int tile) const {
    fetch<T, S::columns, S::dim, S::threads>(to, rows_at<T>(from, at.batch, head, first_column(tile)), from.row, valid_columns(tile),
                                             head_dim, wide);
  }
};

// Forward: while scores are computed, V of that tile is on its way; while they meet V, the next tile's K is.
template <class S>
struct ForwardWalk : Walk<S, false> {
  using T = typename S::T;
  using Way = Walk<S, false>;
  const ForwardArgs& a;

  __device__ __forceinline__ explicit ForwardWalk(const ForwardArgs& args) : Way(args), a(args) {}

  // fetch_q() fetches the block's queries, scores(tile) has K, values() has V.
  template <class Start, class Scores, class Values>
  __device__ __forceinline__ void pass(T* k, T* v, Start fetch_q, Scores scores, Values values) const {
    if (Way::tiles.begin < Way::tiles.end) fetch_keys(k, a.k, Way::tiles.begin), fetch_q();
    for (int tile = Way::tiles.begin; tile < Way::tiles.end; ++tile) {
      warp::copies_wait<0>();
      Way::template arrived<S::columns>(k);
      __syncthreads();  // K is there, and V of the tile before has been read
      fetch_keys(v, a.v, tile);
      scores(tile);
      warp::copies_wait<0>();
      Way::template arrived<S::columns>(v);
      __syncthreads();  // V is there, and K has been read
      if (tile + 1 < Way::tiles.end) fetch_keys(k, a.k, tile + 1);
      values();
    }
  }
  __device__ __forceinline__ float* lse_of(long long row) const {
    return a.lse + ((long long)Way::at.batch * a.heads + Way::at.head) * a.band.len_q + row;
  }

 private:
  __device__ __forceinline__ void fetch_keys(T* to, const Strided& from, int tile) const {
    Way::fetch_tile(to, from, Way::at.head / a.group, tile);
    warp::copies_commit();
  }
};

// Backward: keys meet the tiles of every query head that reads them, one head after another.
template <class S, bool rows_are_keys>
struct BackwardWalk : Walk<S, rows_are_keys> {
  using T = typename S::T;
  using Way = Walk<S, rows_are_keys>;
  const BackwardArgs& a;
  int across, steps;

  __device__ __forceinline__ explicit BackwardWalk(const BackwardArgs& args)
      : Way(args), a(args), across(Way::tiles.end - Way::tiles.begin), steps((rows_are_keys ? a.group : 1) * across) {}

  // gradients(step) has both tiles; after(step) has what all warps left in shared memory, while the next ones are on their way.
  template <class Start, class Gradients, class After>
  __device__ __forceinline__ void pass(T* first, T* second, Start fetch_own, Gradients gradients, After after) const {
    if (steps > 0) fetch_tiles(first, second, 0), fetch_own();
    for (int step = 0; step < steps; ++step) {
      warp::copies_wait<0>();
      Way::template arrived<S::columns>(first), Way::template arrived<S::columns>(second);
      __syncthreads();  // the tiles are there, and what `after` read may be written again
      gradients(step);
      __syncthreads();  // the tiles have been read
      if (step + 1 < steps) fetch_tiles(first, second, step + 1);
      after(step);
    }
  }
  __device__ __forceinline__ int tile_of(int step) const { return Way::tiles.begin + step % across; }
  __device__ __forceinline__ const float* statistics_of(const float* x, int head) const {
    return x + ((long long)Way::at.batch * a.heads + head) * a.padded;
  }
  __device__ __forceinline__ float* dq_of(int step) const {  // of the tile's queries
    return rows_at<float>(a.dq, Way::at.batch, head_of(step), Way::first_column(tile_of(step)));
  }

 private:
  __device__ __forceinline__ int head_of(int step) const {
    return rows_are_keys ? Way::at.head * a.group + step / across : Way::at.head / a.group;
  }
  __device__ __forceinline__ void fetch_tiles(T* first, T* second, int step) const {
    const int head = head_of(step), tile = tile_of(step);
    Way::fetch_tile(first, rows_are_keys ? a.q : a.k, head, tile);
    if constexpr (rows_are_keys)
      fetch_statistics<T, S::columns, S::dim>(first, statistics_of(a.lse, head) + tile * S::columns,
                                              statistics_of(a.delta, head) + tile * S::columns);
    Way::fetch_tile(second, rows_are_keys ? a.d_o : a.v, head, tile);
    warp::copies_commit();
  }
};

}  // namespace headroom::attention::blocks
