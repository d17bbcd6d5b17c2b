// blocks.cuh — what the kernels of flash_simt and flash_sm80 have in common: who works on what, tiles on their way into shared memory.
#pragma once
#include "gpu/mma.cuh"
#include "gpu/mma_sm80.cuh"
#include "ops/attention/fall.cuh"
#include "ops/attention/mend/mend.cuh"
#include "ops/attention/sm80/blocks.h"
#include "ops/attention/softmax.cuh"

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

// 2^x of what is no more than 0 but for rounding: LSE is kept in FP32, and past scores of about 10⁵ that alone would make a probability
// larger than 1. A NaN stays one.
__device__ __forceinline__ float probability(float x) {
  asm("min.NaN.f32 %0, %1, 0f00000000;" : "=f"(x) : "f"(x));
  return exp2_fast(x);
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
template <bool rows_are_keys, bool more>
__device__ __forceinline__ Limits limits_of(const BandOf<int>& band, int batch, int row, int first_column) {
  if (more && band.reach == Reach::listed) {
    const int len = rows_are_keys ? band.len_k : band.len_q, at = min(row, len - 1);  // rows past the last are computed and dropped
    const Run seen = (rows_are_keys ? band.rows_of : band.keys_of)[(long long)batch * len + at];
    return {seen.first - first_column, seen.last - first_column};
  }
  constexpr Reach numbers = Reach::run;
  if constexpr (rows_are_keys)
    return {band.first_row<numbers>(row) - first_column, band.last_row<numbers>(row) - first_column};
  else
    return {band.first<numbers>(row) - first_column, band.last<numbers>(row) - first_column};
}
// The tiles of the other side that rows [row, row + rows) see, in one row of the batch.
template <bool rows_are_keys, bool more>
__device__ __forceinline__ TileSpan tiles_seen(BandOf<int> band, int batch, int row, int rows, int width) {
  constexpr Reach numbers = more ? Reach::any : Reach::run;
  if (more && band.reach == Reach::listed) {
    band.keys_of += (long long)batch * band.len_q;
    band.rows_of += (long long)batch * band.len_k;
  }
  return rows_are_keys ? band.row_tiles<numbers>(row, rows, width) : band.key_tiles<numbers>(row, rows, width);
}

// The other side up to the last position that rows [row, row + rows) see: behind it, tiles hold zeros.
template <bool rows_are_keys, bool more>
__device__ __forceinline__ int columns_seen(const BandOf<int>& band, int batch, int row, int rows) {
  if (!more || band.reach != Reach::listed) return rows_are_keys ? band.len_q : band.len_k;
  const int len = rows_are_keys ? band.len_k : band.len_q;
  return (rows_are_keys ? band.rows_of : band.keys_of)[(long long)batch * len + min(row + rows, len) - 1].last;
}

template <class Shape, Asks asks>
struct Asking : Shape {
  static constexpr bool more = asks != Asks::plain, by_place = asks == Asks::dropout || asks == Asks::alibi, falls = asks == Asks::alibi;
  // Whether any is dropped is asked in kernels of ALiBi alone: for dropout's a branch would cost time (docs/decisions/bias-of-positions.md).
  __device__ __forceinline__ static bool drops(const Dropout& d) { return asks == Asks::dropout || (asks == Asks::alibi && d.below); }
};
template <bool by_place>
struct DrawsIf : Draws {
  __device__ __forceinline__ explicit DrawsIf(const Dropout& d) : Draws(d.draws()) {}
};
template <>
struct DrawsIf<false> {
  __device__ __forceinline__ explicit DrawsIf(const Dropout&) {}
};
template <ByPlace by_place>
constexpr Asks asked_by_place = by_place == ByPlace::dropout ? Asks::dropout : Asks::alibi;
template <bool more, int high, int columns>
__device__ __forceinline__ void report_nan(const float (&sums)[high][columns], int* not_numbers) {
  if (more && not_numbers)
#pragma unroll
    for (int i = 0; i < high; ++i) attention::report_nan(sums[i], not_numbers);
}
inline bool asks_more(const ForwardArgs& a) { return a.cap != 0 || a.sink || a.paged.table || a.band.reach == Reach::listed; }
inline bool asks_more(const BackwardArgs& a) { return a.cap != 0 || a.band.reach == Reach::listed; }

// A block's way: `rows` rows of one head (queries, or keys of a key head) stay, and of the other side all tiles that one of them sees pass.
template <class S, bool rows_are_keys>
struct Walk {
  using T = typename S::T;
  Place at;
  const BandOf<int>& band;
  int row0, rows, columns;
  int valid;  // so many of this block's rows exist
  bool wide;
  TileSpan tiles;

  template <class Args>
  __device__ __forceinline__ explicit Walk(const Args& a)
      : at(place_of(a.deal, rows_are_keys ? a.heads / a.group : a.heads)),
        band(a.band),
        row0(at.tile * S::rows),
        rows(rows_are_keys ? band.len_k : band.len_q),
        columns(columns_seen<rows_are_keys, S::more>(band, at.batch, row0, S::rows)),
        valid(min(S::rows, rows - row0)),
        wide(a.wide),
        tiles(tiles_seen<rows_are_keys, S::more>(band, at.batch, row0, S::rows, S::columns)) {}

  __device__ __forceinline__ static int first_column(int tile) { return tile * S::columns; }
  __device__ __forceinline__ int valid_columns(int tile) const { return min(S::columns, columns - first_column(tile)); }
  __device__ __forceinline__ bool plain(int tile) const { return tile >= tiles.plain_begin && tile < tiles.plain_end; }
  __device__ __forceinline__ Limits seen_by(int row, int tile) const {
    return limits_of<rows_are_keys, S::more>(band, at.batch, row0 + row, first_column(tile));
  }
  __device__ __forceinline__ void fetch_rows(T* to, const Strided& from, int dim) const {  // and waits for them
    fetch<T, S::rows, S::dim, S::threads>(to, rows_at<T>(from, at.batch, at.head, row0), from.row, valid, dim, wide);
    warp::copies_commit();
    warp::copies_wait<0>();
    arrived<S::rows>(to);
  }
  template <int count>
  __device__ __forceinline__ void arrived(T* fetched) const {  // `count` rows that this thread helped to fetch
    if constexpr (S::rounds) round_fetched<count, S::dim, S::threads>(fetched, wide);
  }
  __device__ __forceinline__ void fetch_tile(T* to, const Strided& from, int head, int tile, int dim) const {
    fetch<T, S::columns, S::dim, S::threads>(to, rows_at<T>(from, at.batch, head, first_column(tile)), from.row, valid_columns(tile), dim,
                                             wide);
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
    if (Way::tiles.begin < Way::tiles.end) {
      fetch_keys(k, a.k, Way::tiles.begin, a.head_dim);
      fetch_q();
    }
    for (int tile = Way::tiles.begin; tile < Way::tiles.end; ++tile) {
      warp::copies_wait<0>();
      Way::template arrived<S::columns>(k);
      __syncthreads();  // K is there, and V of the tile before has been read
      fetch_keys(v, a.v, tile, a.dim_v);
      scores(tile);
      warp::copies_wait<0>();
      Way::template arrived<S::columns>(v);
      __syncthreads();  // V is there, and K has been read
      if (tile + 1 < Way::tiles.end) fetch_keys(k, a.k, tile + 1, a.head_dim);
      values();
    }
  }
  __device__ __forceinline__ float* lse_of(int row) const {
    return a.lse + ((long long)Way::at.batch * a.heads + Way::at.head) * a.band.len_q + row;
  }

 private:
  __device__ __forceinline__ void fetch_keys(T* to, const Strided& from, int tile, int dim) const {
    if (S::more && a.paged.table)
      fetch_from_pages(to, from, tile, dim);
    else
      Way::fetch_tile(to, from, Way::at.head / a.group, tile, dim);
    warp::copies_commit();
  }
  // Every row by the page that holds it; rows without a page become zeros, which no query sees. Threads take the same parts as of other tiles.
  __device__ __noinline__ void fetch_from_pages(T* to, const Strided& from, int tile, int dim) const {
    const int first = Way::first_column(tile), valid = Way::valid_columns(tile), kv_head = Way::at.head / a.group;
    const int* const pages = a.paged.table + (long long)Way::at.batch * a.paged.of_sequence;
    const auto row_at = [&](int row) -> const T* {
      if (row >= valid) return nullptr;
      const int page = pages[(first + row) / a.paged.size];
      return page < 0 || page >= a.paged.count ? nullptr : rows_at<T>(from, page, kv_head, (first + row) % a.paged.size);
    };
    if (Way::wide) {
      constexpr int per = 16 / sizeof(T), chunks = S::dim / per;
#pragma unroll 1
      for (int i = threadIdx.x; i < S::columns * chunks; i += S::threads) {
        const int row = i / chunks, column = i % chunks * per;
        const T* const at = column < dim ? row_at(row) : nullptr;
        warp::copy_16(to + row * pitch<T>(S::dim) + column, at ? at + column : static_cast<const T*>(from.data), at != nullptr);
      }
    } else {
#pragma unroll 1
      for (int i = threadIdx.x; i < S::columns * S::dim; i += S::threads) {
        const int row = i / S::dim, column = i % S::dim;
        const T* const at = column < dim ? row_at(row) : nullptr;
        to[row * pitch<T>(S::dim) + column] = at ? at[column] : T(0.f);
      }
    }
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
    if (steps > 0) {
      fetch_tiles(first, second, 0);
      fetch_own();
    }
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
  __device__ __forceinline__ unsigned pair_of(int step) const {  // the query head, counted over the batch
    return Way::at.batch * a.heads + query_head_of(step);
  }
  __device__ __forceinline__ int query_head_of(int step) const { return rows_are_keys ? head_of(step) : Way::at.head; }
  __device__ __forceinline__ float* dq_of(int step) const {  // the place of dQ of a step's queries
    return rows_at<float>(a.dq, Way::at.batch, head_of(step), Way::first_column(tile_of(step)));
  }

 private:
  __device__ __forceinline__ int head_of(int step) const {
    return rows_are_keys ? Way::at.head * a.group + step / across : Way::at.head / a.group;
  }
  __device__ __forceinline__ void fetch_tiles(T* first, T* second, int step) const {
    const int head = head_of(step), tile = tile_of(step);
    Way::fetch_tile(first, rows_are_keys ? a.q : a.k, head, tile, a.head_dim);
    if constexpr (rows_are_keys)
      fetch_statistics<T, S::columns, S::dim>(first, statistics_of(a.lse, head) + tile * S::columns,
                                              statistics_of(a.delta, head) + tile * S::columns);
    Way::fetch_tile(second, rows_are_keys ? a.d_o : a.v, head, tile, a.dim_v);
    warp::copies_commit();
  }
};

}  // namespace headroom::attention::blocks
