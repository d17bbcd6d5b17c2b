// A tile in 8 bits: its scales, its numbers as they are and transposed, and the counts.
#pragma once
#include "ops/quantise/encode_two.cuh"
#include "ops/quantise/tile_maxima.cuh"

namespace headroom::quantise {

// The scale of a line of a copy within this tile, stored by one of those that know it; its inverse.
template <class E>
__device__ float inverse_of(const Copy& y, const std::uint32_t* all, const std::uint32_t* of_lines, std::uint32_t of_run,
                            std::uint32_t of_tile, int line, int lines, int along, bool first_line) {
  if (line >= lines) return 1;
  std::uint32_t largest = of_run;
  float* to = y.scale + std::int64_t(along) * y.apart + line;
  bool stores = true;
  switch (y.kind) {
    case ScaleKind::one: largest = *all, to = y.scale, stores = line == 0 && along == 0; break;
    case ScaleKind::row: largest = of_lines[line], to = y.scale + line, stores = along == 0; break;
    case ScaleKind::run: break;
    case ScaleKind::block: largest = of_tile, to = y.scale + std::int64_t(line / side) * y.apart + along, stores = first_line;
  }
  const float scale = scale_of<E>(largest);
  if (stores) *to = scale;
  return 1 / scale;
}

template <class E>
__device__ void put(uint2& eight, int at, float low, float high) {  // at: even, known when compiled
  (at < 4 ? eight.x : eight.y) |= encode_two<E>(low, high) << at % 4 * 8;
}

__device__ inline int nonzero_codes(uint2 v) {
  const auto in = [](std::uint32_t w) { return __popc(((w & 0x7f7f7f7fu) + 0x7f7f7f7fu) & 0x80808080u); };
  return in(v.x) + in(v.y);
}

__device__ inline int place_of(int group, int j, int rows_group) { return (group * own + j) * side + (rows_group ^ group) * own; }

// A thread's numbers in 8 bits: as they are to the copy, transposed to the room. Answers how many became 0.
template <class T, class A, class B, class Source>
__device__ int encode_own(const Args<T>& a, const Place8& at, int k, const Tile<T>& t, Room<T>& room, Room<T>& counts) {
  using W = Word<T>;
  const int group = at.group, rows_group = at.rows_group, half = a.columns / Source::tiles;
  int flushed = 0;
  std::uint8_t* to = a.as_is.values + std::int64_t(at.row) * a.columns + at.column + k * half;
  if (a.whole && !t.special) {
    // A number is widened once for both copies: of a pair of rows two codes each go to the rows, and two to each column.
    uint2 columns[own] = {};
#pragma unroll
    for (int i = 0; i < own; i += 2) {
      const float of_row0 = room.of_row[rows_group * own + i], of_row1 = room.of_row[rows_group * own + i + 1];
      uint2 row0 = {}, row1 = {};
#pragma unroll
      for (int j = 0; j < own; j += 2) {
        const float v00 = W::value(t.x[i], j), v01 = W::value(t.x[i], j + 1), v10 = W::value(t.x[i + 1], j),
                    v11 = W::value(t.x[i + 1], j + 1);
        if constexpr (eight_bits<A>) {
          put<A>(row0, j, v00 * of_row0, v01 * of_row0);
          put<A>(row1, j, v10 * of_row1, v11 * of_row1);
        }
        if constexpr (eight_bits<B>) {
          const float of_column0 = room.of_column[group * own + j], of_column1 = room.of_column[group * own + j + 1];
          put<B>(columns[j], i, v00 * of_column0, v10 * of_column0);
          put<B>(columns[j + 1], i, v01 * of_column1, v11 * of_column1);
        }
      }
#pragma unroll
      for (int w = 0; w < 2 * W::count; ++w)
        flushed += (int(eight_bits<A>) + int(eight_bits<B>)) * W::nonzero(W::magnitude(t.x[i + w / W::count][w % W::count]));
      if constexpr (eight_bits<A>) {
        flushed -= nonzero_codes(row0) + nonzero_codes(row1);
        if (at.row < a.rows && at.column < half) {
          *reinterpret_cast<uint2*>(to + std::int64_t(i) * a.columns) = row0;
          *reinterpret_cast<uint2*>(to + std::int64_t(i + 1) * a.columns) = row1;
        }
      }
    }
    if constexpr (eight_bits<B>) {
#pragma unroll
      for (int j = 0; j < own; ++j) {
        flushed -= nonzero_codes(columns[j]);
        *reinterpret_cast<uint2*>(room.codes + place_of(group, j, rows_group)) = columns[j];
      }
    }
    return flushed;
  }
  unsigned clipped = 0, nan = 0;
#pragma unroll 1
  for (int i = 0; i < own; ++i)
#pragma unroll 1
    for (int j = 0; j < own; ++j) {
      if (at.row + i >= a.rows || at.column + j >= half) continue;
      const float x = Source::value(a, k, at.row + i, at.column + j);
      if constexpr (eight_bits<A>) {
        const Encoded v = encode<A>(x, room.of_row[rows_group * own + i]);
        to[std::int64_t(i) * a.columns + j] = v.bits;
        clipped += v.clipped, flushed += v.flushed, nan += v.nan;
      }
      if constexpr (eight_bits<B>) {
        const Encoded v = encode<B>(x, room.of_column[group * own + j]);
        room.codes[place_of(group, j, rows_group) + i] = v.bits;
        clipped += v.clipped, flushed += v.flushed, nan += v.nan;
      }
    }
  if (clipped) atomicAdd(&counts.clipped, clipped);
  if (nan) atomicAdd(&counts.nan, nan);
  return flushed;
}

// Sixteen numbers of a line of the transposed tile: a line's u-th.
__device__ inline uint4 piece_of_line(const std::uint8_t* codes, int line, int u) {
  const int of = line / own;
  const uint4 v = *reinterpret_cast<const uint4*>(codes + line * side + (u ^ of / 2) * 16);
  return of % 2 ? uint4{v.z, v.w, v.x, v.y} : v;
}

// The transposed tile, from the room to its place.
template <class T>
__device__ void write_lines(const Args<T>& a, int row0, int column0, const Room<T>& room) {
#pragma unroll
  for (int n = 0; n < side * side / 16 / threads; ++n) {
    const int piece = int(threadIdx.x) + n * threads, line = piece / 8, u = piece % 8;
    const uint4 v = piece_of_line(room.codes, line, u);
    const int row = row0 + u * 16, column = column0 + line;
    if (column >= a.columns || row >= a.rows) continue;
    std::uint8_t* to = a.transposed.values + std::int64_t(column) * a.rows + row;
    if (a.whole) {
      *reinterpret_cast<uint4*>(to) = v;
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i)
        if (row + i < a.rows) to[i] = std::uint8_t((i < 4 ? v.x : i < 8 ? v.y : i < 12 ? v.z : v.w) >> i % 4 * 8);
    }
  }
}

// quantise — a tile in 8 bits, as it is and transposed.
//   reads   x once; maxima beyond a tile        writes   the copies, their scales, and adds to counts
//   numerics  encode.h: the hardware's conversion gives the same bits for finite numbers; a thread that has others computes by encode()
//   limit   bandwidth
template <class T, class A, class B, class Source>
__global__ void __launch_bounds__(threads, blocks_of_unit<T, Source>) quantise_tile(const __grid_constant__ Args<T> a) {
  using W = Word<T>;
  constexpr int tiles = Source::tiles;
  __shared__ __align__(16) Room<T> room[tiles];
  const int thread = int(threadIdx.x), apart = a.columns / tiles;  // columns from one of the block's tiles to the next
  const Place8 at = place_in(a, a.backwards);
  if (thread == 0) room[0].clipped = room[0].flushed = room[0].nan = 0;
  Tile<T> t[tiles];
  load_tiles<T, Source>(a, at, t);
  ask_ahead<T, Source>(a);
#pragma unroll
  for (int k = 0; k < tiles; ++k) find_maxima(at, t[k], room[k]);
  __syncthreads();
#pragma unroll
  for (int k = 0; k < tiles; ++k) {
    const int i = thread % side, along_columns = at.tile_column + k * (apart / side);
    const std::uint32_t of_tile = largest_of_tile(room[k]);
    if (thread < side) {
      if constexpr (eight_bits<A>)
        room[k].of_row[i] = inverse_of<A>(a.as_is, a.all, a.of_rows, W::wide(room[k].row_max[i]), of_tile, at.tile_row * side + i, a.rows,
                                          along_columns, i == 0);
    } else if constexpr (eight_bits<B>) {
      room[k].of_column[i] = inverse_of<B>(a.transposed, a.all, a.of_columns, largest_of_column(room[k], i), of_tile,
                                           along_columns * side + i, a.columns, at.tile_row, i == 0);
    }
  }
  __syncthreads();
  int flushed = 0;
#pragma unroll
  for (int k = 0; k < tiles; ++k) flushed += encode_own<T, A, B, Source>(a, at, k, t[k], room[k], room[0]);
  if (a.counts) {
    const unsigned of_warp = __reduce_add_sync(~0u, unsigned(flushed));
    if (thread % 32 == 0 && of_warp) atomicAdd(&room[0].flushed, of_warp);
  }
  __syncthreads();
  if (a.counts && thread == 0) {
    const auto add = [&](Count which, unsigned long long n) {
      if (n) atomicAdd(a.counts + which, n);
    };
    if (blockIdx.x == 0)
      add(Count::numbers,
          (unsigned long long)(int(eight_bits<A>) + int(eight_bits<B>)) * (unsigned long long)a.rows * (unsigned long long)a.columns);
    add(Count::clipped, room[0].clipped);
    add(Count::flushed, room[0].flushed);
    add(Count::nan, room[0].nan);
  }
  if constexpr (eight_bits<B>) {
#pragma unroll
    for (int k = 0; k < tiles; ++k) write_lines(a, at.tile_row * side, at.tile_column * side + k * apart, room[k]);
  }
}

}  // namespace headroom::quantise
