// The largest magnitudes of a tile, of its rows and of its columns, and those of scales that reach beyond a tile.
#pragma once
#include "ops/quantise/tile.cuh"

namespace headroom::quantise {

// Leaves in `room` the maxima of a tile's rows, of its columns in each warp, and of each warp. A barrier must follow.
template <class T>
__device__ void find_maxima(const Place8& at, Tile<T>& t, Room<T>& room) {
  using W = Word<T>;
  const int group = at.group, rows_group = at.rows_group, warp = int(threadIdx.x) / 32;
  std::uint32_t of_columns[W::count], of_rows[own];
  const auto measure = [&](auto&& magnitude) {
#pragma unroll
    for (int i = 0; i < own; ++i) {
#pragma unroll
      for (int w = 0; w < W::count; ++w) {
        const std::uint32_t m = magnitude(t.x[i][w]);
        of_rows[i] = w == 0 ? m : W::max(of_rows[i], m);
        of_columns[w] = i == 0 ? m : W::max(of_columns[w], m);
      }
    }
  };
  measure([](std::uint32_t w) { return W::magnitude(w); });
  t.special = false;
#pragma unroll
  for (int w = 0; w < W::count; ++w) t.special = t.special || W::any_infinite(of_columns[w]);
  if (t.special) measure([](std::uint32_t w) { return W::finite(W::magnitude(w)); });
  constexpr int row_words = own / W::holds;
  std::uint32_t rows[row_words];  // a 16-bit type has two in a word
#pragma unroll
  for (int i = 0; i < row_words; ++i) {
    if constexpr (W::holds == 2)
      rows[i] = W::max(__byte_perm(of_rows[2 * i], of_rows[2 * i + 1], 0x5410), __byte_perm(of_rows[2 * i], of_rows[2 * i + 1], 0x7632));
    else
      rows[i] = of_rows[i];
  }
#pragma unroll
  for (int step = across / 2; step; step /= 2)
#pragma unroll
    for (int i = 0; i < row_words; ++i) rows[i] = W::max(rows[i], __shfl_xor_sync(~0u, rows[i], step));
#pragma unroll
  for (int w = 0; w < W::count; ++w) of_columns[w] = W::max(of_columns[w], __shfl_xor_sync(~0u, of_columns[w], 16));
  std::uint32_t largest = rows[0];
#pragma unroll
  for (int i = 1; i < row_words; ++i) largest = W::max(largest, rows[i]);
  largest = W::max(largest, __shfl_xor_sync(~0u, largest, 16));
  if constexpr (W::holds == 2) largest = ::max(largest & 0xffffu, largest >> 16);
  if (threadIdx.x % 32 < across) {
#pragma unroll
    for (int w = 0; w < W::count; ++w) reinterpret_cast<std::uint32_t*>(&room.column_max[warp][group * own])[w] = of_columns[w];
  }
  if (group == 0) {
#pragma unroll
    for (int i = 0; i < row_words; ++i) reinterpret_cast<std::uint32_t*>(&room.row_max[rows_group * own])[i] = rows[i];
  }
  if (threadIdx.x % 32 == 0) room.largest[warp] = W::wide(largest);
}

template <class T>
__device__ std::uint32_t largest_of_tile(const Room<T>& room) {
  std::uint32_t m = room.largest[0];
#pragma unroll
  for (int w = 1; w < warps; ++w) m = ::max(m, room.largest[w]);
  return m;
}

template <class T>
__device__ std::uint32_t largest_of_column(const Room<T>& room, int column) {
  std::uint32_t m = room.column_max[0][column];
#pragma unroll
  for (int w = 1; w < warps; ++w) m = ::max(m, std::uint32_t(room.column_max[w][column]));
  return Word<T>::wide(m);
}

// quantise_measure — maxima beyond a tile, of a scale a tensor and scales a row.
//   reads  x once     writes  all, of_rows, of_columns, which were 0     needs  blocks in any order: maxima of whole numbers     limit  bandwidth
template <class T, class Source>
__global__ void __launch_bounds__(threads) quantise_measure(const __grid_constant__ Args<T> a) {
  __shared__ __align__(16) Room<T> room[Source::tiles];
  const Place8 at = place_in(a, false);
  Tile<T> t[Source::tiles];
  load_tiles<T, Source>(a, at, t);
#pragma unroll
  for (int k = 0; k < Source::tiles; ++k) find_maxima(at, t[k], room[k]);
  __syncthreads();
  const int i = int(threadIdx.x) % side, row = at.tile_row * side + i;
#pragma unroll
  for (int k = 0; k < Source::tiles; ++k) {
    const int column = at.tile_column * side + k * (a.columns / Source::tiles) + i;
    if (int(threadIdx.x) < side) {
      if (a.of_rows && row < a.rows) atomicMax(a.of_rows + row, Word<T>::wide(room[k].row_max[i]));
      if (a.all && i == 0) atomicMax(a.all, largest_of_tile(room[k]));
    } else if (a.of_columns && column < a.columns) {
      atomicMax(a.of_columns + column, largest_of_column(room[k], i));
    }
  }
}

}  // namespace headroom::quantise
