// A tile of 128 × 128 numbers as a block of quantise holds it: a thread has 8 × 8 of them in registers, as they are stored or as SwiGLU or a norm makes them.
#pragma once
#include "gpu/vec.cuh"
#include "ops/quantise/impl.h"
#include "ops/swiglu/element.cuh"

namespace headroom::quantise {

constexpr int side = int(scale_block), own = 8, across = side / own, threads = across * across, warps = threads / 32;

struct LeftOut {};  // in place of a copy's format
template <class E>
constexpr bool eight_bits = !std::is_same_v<E, LeftOut>;

struct Copy {
  std::uint8_t* values;
  float* scale;
  ScaleKind kind;
  int apart;  // scales from one run, or block of lines, to the next
};

template <class T>
struct Args {
  const T *x, *dact;
  const float *weight, *rstd;
  int rows, columns;
  unsigned tiles;  // in a row of tiles
  unsigned units;  // multiprocessors
  bool whole;      // pieces of 16 bytes and groups of 8 numbers end inside or outside, never across an edge
  bool backwards;  // the last tile first: what was measured last is in the cache still
  Copy as_is, transposed;
  std::uint32_t *all, *of_rows, *of_columns;  // magnitudes as FP32 bits: maxima beyond a tile; nullptr: not needed
  unsigned long long* counts;
};

// Magnitudes of neighbours in a 32-bit word: two of a 16-bit type, one of FP32. They order as their bits do.
template <class T>
struct Word {
  static constexpr int holds = 4 / int(sizeof(T)), count = own / holds;  // in a thread's row
  using Lane = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
  static constexpr std::uint32_t infinity = std::is_same_v<T, float> ? 0x7f800000u : Bits<T>::mantissa == 7 ? 0x7f80u : 0x7c00u;

  static __device__ std::uint32_t magnitude(std::uint32_t w) { return w & (holds == 2 ? 0x7fff7fffu : 0x7fffffffu); }
  static __device__ std::uint32_t max(std::uint32_t a, std::uint32_t b) {
    if constexpr (holds == 2)
      return __vmaxu2(a, b);
    else
      return a > b ? a : b;
  }
  static __device__ std::uint32_t finite(std::uint32_t m) {  // 0 for those that are not
    if constexpr (holds == 2)
      return ((m & 0xffffu) < infinity ? m & 0xffffu : 0u) | ((m >> 16) < infinity ? m & 0xffff0000u : 0u);
    else
      return m < infinity ? m : 0u;
  }
  static __device__ bool any_infinite(std::uint32_t m) {
    if constexpr (holds == 2)
      return (m & 0xffffu) >= infinity || (m >> 16) >= infinity;
    else
      return m >= infinity;
  }
  static __device__ int nonzero(std::uint32_t m) {
    if constexpr (holds == 2)
      return __popc((m + 0x7fff7fffu) & 0x80008000u);
    else
      return m != 0;
  }
  static __device__ std::uint32_t bits(T x) {
    if constexpr (std::is_same_v<T, float>)
      return __float_as_uint(x);
    else
      return x.bits;
  }
  static __device__ float value(const std::uint32_t (&row)[count], int j) {
    if constexpr (holds == 1)
      return __uint_as_float(row[j]);
    else if constexpr (Bits<T>::mantissa == 7)
      return __uint_as_float(j % 2 ? row[j / 2] & 0xffff0000u : row[j / 2] << 16);
    else
      return widened(T{std::uint16_t(row[j / 2] >> 16 * (j % 2))});
  }
  static __device__ float special_value(const std::uint32_t (&row)[count],
                                        int j) {  // a NaN keeps its sign, which the hardware drops for fp16
    if constexpr (holds == 1)
      return value(row, j);
    else
      return widen(T{std::uint16_t(row[j / 2] >> 16 * (j % 2))});
  }
  static __device__ std::uint32_t wide(std::uint32_t m) {  // one maximum as FP32
    if constexpr (std::is_same_v<T, float>)
      return m;
    else
      return __float_as_uint(widened(T{std::uint16_t(m)}));
  }
};

template <class T>
__device__ void load_words(const T* from, std::uint32_t (&to)[Word<T>::count]) {
#pragma unroll
  for (int w = 0; w < Word<T>::count; w += 4) {
    const auto four = reinterpret_cast<const uint4*>(from)[w / 4];
    to[w] = four.x, to[w + 1] = four.y, to[w + 2] = four.z, to[w + 3] = four.w;
  }
}

template <class T>
__device__ void words_of(const Pack<T, own>& x, std::uint32_t (&to)[Word<T>::count]) {
#pragma unroll
  for (int w = 0; w < Word<T>::count; ++w) to[w] = reinterpret_cast<const std::uint32_t*>(&x)[w];
}

template <class T>
struct alignas(16) Room {           // two of them lie beside each other
  std::uint8_t codes[side * side];  // transposed: of each column its rows, pieces of 8 at (piece ^ group of columns)
  typename Word<T>::Lane column_max[warps][side], row_max[side];
  std::uint32_t largest[warps];
  float of_row[side], of_column[side];  // 1 / scale
  unsigned clipped, flushed, nan;
};

constexpr int line_of_l2 = 128;
__device__ inline void ask_l2(const void* line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }

// Where a tile's numbers come from. row(): eight of a row, inside the tensor and aligned, of each tile that a block takes; value(): one. ask(): for the lines of
// L2 that these come from.
template <class T>
struct Stored {
  static constexpr int tiles = 1;
  static __device__ void row(const Args<T>& a, std::int64_t row, int column, std::uint32_t (&to)[1][Word<T>::count]) {
    load_words<T>(a.x + row * a.columns + column, to[0]);
  }
  static __device__ void ask(const Args<T>& a, std::int64_t row, int column) { ask_l2(a.x + row * a.columns + column); }
  static __device__ float value(const Args<T>& a, int, std::int64_t row, int column) { return widen(a.x[row * a.columns + column]); }
};

template <class T>
struct SwigluProduct {  // from x = gate and up beside each other, rounded to T as swiglu_fwd stores it
  static constexpr int tiles = 1;
  static __device__ void row(const Args<T>& a, std::int64_t row, int column, std::uint32_t (&to)[1][Word<T>::count]) {
    const T* gate = a.x + row * 2 * a.columns + column;
    const Pack<float, own> g = widened(load<own>(gate)), u = widened(load<own>(gate + a.columns));
    Pack<float, own> y;
#pragma unroll
    for (int j = 0; j < own; ++j) y.at[j] = swiglu::product_of<T>(g.at[j], u.at[j]);
    words_of(rounded<T>(y), to[0]);
  }
  static __device__ void ask(const Args<T>& a, std::int64_t row, int column) {
    const T* gate = a.x + row * 2 * a.columns + column;
    ask_l2(gate), ask_l2(gate + a.columns);
  }
  static __device__ float value(const Args<T>& a, int, std::int64_t row, int column) {
    const T* gate = a.x + row * 2 * a.columns + column;
    return widened(rounded<T>(swiglu::product_of<T>(widened(gate[0]), widened(gate[a.columns]))));
  }
};

template <class T>
struct SwigluGradient {  // from x = gate and up beside each other and dact, as swiglu_bwd stores it: a tile of gate's half, one of up's
  static constexpr int tiles = 2;
  static __device__ void row(const Args<T>& a, std::int64_t row, int column, std::uint32_t (&to)[2][Word<T>::count]) {
    const int half = a.columns / 2;
    const T* gate = a.x + row * a.columns + column;
    const Pack<float, own> g = widened(load<own>(gate)), u = widened(load<own>(gate + half)),
                           d = widened(load<own>(a.dact + row * half + column));
    Pack<float, own> dg, du;
#pragma unroll
    for (int j = 0; j < own; ++j) {
      const swiglu::ElementGradient e = swiglu::gradient_of<T>(g.at[j], u.at[j], d.at[j]);
      dg.at[j] = e.gate, du.at[j] = e.up;
    }
    words_of(rounded<T>(dg), to[0]);
    words_of(rounded<T>(du), to[1]);
  }
  static __device__ void ask(const Args<T>& a, std::int64_t row, int column) {
    const int half = a.columns / 2;
    const T* gate = a.x + row * a.columns + column;
    ask_l2(gate), ask_l2(gate + half), ask_l2(a.dact + row * half + column);
  }
  static __device__ float value(const Args<T>& a, int tile, std::int64_t row, int column) {  // column: of gate's half, for both
    const int half = a.columns / 2;
    const T* gate = a.x + row * a.columns + column;
    const auto e = swiglu::gradient_of<T>(widened(gate[0]), widened(gate[half]), widened(a.dact[row * half + column]));
    return widened(rounded<T>(tile ? e.up : e.gate));
  }
};

template <class T>
struct Normed {  // from x, weight and rstd, rounded to T as rmsnorm_fwd stores it
  static constexpr int tiles = 1;
  static __device__ void row(const Args<T>& a, std::int64_t row, int column, std::uint32_t (&to)[1][Word<T>::count]) {
    Pack<float, own> y = widened(load<own>(a.x + row * a.columns + column));
    const Pack<float, own> w = load<own>(a.weight + column);
    const float root = a.rstd[row];
#pragma unroll
    for (int j = 0; j < own; ++j) y.at[j] = y.at[j] * root * w.at[j];
    words_of(rounded<T>(y), to[0]);
  }
  static __device__ void ask(const Args<T>& a, std::int64_t row, int column) { ask_l2(a.x + row * a.columns + column); }
  static __device__ float value(const Args<T>& a, int, std::int64_t row, int column) {
    return widened(rounded<T>(widened(a.x[row * a.columns + column]) * a.rstd[row] * a.weight[column]));
  }
};

template <class T>
struct Tile {  // a thread's numbers
  std::uint32_t x[own][Word<T>::count];
  bool special;  // some are not finite
};

struct Place8 {  // where a thread's numbers are, and the tile that they are of
  int group, rows_group, row, column, tile_row, tile_column;
};
__device__ inline unsigned tile_of_block(unsigned block, bool backwards) { return backwards ? gridDim.x - 1 - block : block; }

template <class T>
__device__ Place8 place_in(const Args<T>& a, bool backwards) {
  const int group = int(threadIdx.x) % across, rows_group = int(threadIdx.x) / across;
  const unsigned tile = tile_of_block(blockIdx.x, backwards);
  const int down = int(tile / a.tiles), right = int(tile % a.tiles);
  return {group, rows_group, down * side + rows_group * own, right * side + group * own, down, right};
}

template <class T, class Source>
constexpr int blocks_of_unit = sizeof(T) == 2 && Source::tiles == 1 ? 3 : 2;

// Asks L2 for the tile of a block that begins half a round of blocks later: blocks load, then round and store, and memory idles in between. Of a quarter to two
// thirds of a round half is the best, of a whole one nothing is left: SwiGLU's gradient took 132 µs, 148 with a round and 153 without (4096 x 20480, one H200).
template <class T, class Source>
__device__ void ask_ahead(const Args<T>& a) {
  const unsigned block = blockIdx.x + a.units * blocks_of_unit<T, Source> / 2;
  if (block >= gridDim.x) return;
  constexpr int of_line = line_of_l2 / int(sizeof(T)), lines = side / of_line;
  const unsigned tile = tile_of_block(block, a.backwards);
  const int row0 = int(tile / a.tiles) * side, column0 = int(tile % a.tiles) * side;
#pragma unroll
  for (int i = 0; i < side * lines / threads; ++i) {
    const int line = int(threadIdx.x) + i * threads, row = row0 + line / lines, column = column0 + line % lines * of_line;
    if (row < a.rows && column < a.columns / Source::tiles) Source::ask(a, row, column);
  }
}

template <class T, class Source>
__device__ void load_tiles(const Args<T>& a, const Place8& at, Tile<T> (&t)[Source::tiles]) {
  using W = Word<T>;
  if (a.whole) {
    if (at.row < a.rows && at.column < a.columns / Source::tiles) {
#pragma unroll
      for (int i = 0; i < own; ++i) {
        std::uint32_t row[Source::tiles][W::count];
        Source::row(a, at.row + i, at.column, row);
#pragma unroll
        for (int k = 0; k < Source::tiles; ++k)
#pragma unroll
          for (int w = 0; w < W::count; ++w) t[k].x[i][w] = row[k][w];
      }
    } else {
#pragma unroll
      for (int k = 0; k < Source::tiles; ++k)
#pragma unroll
        for (int i = 0; i < own * W::count; ++i) t[k].x[i / W::count][i % W::count] = 0;
    }
  } else if constexpr (std::is_same_v<Source, Stored<T>>) {
#pragma unroll
    for (int i = 0; i < own; ++i) {
#pragma unroll
      for (int w = 0; w < W::count; ++w) {
        t[0].x[i][w] = 0;
#pragma unroll
        for (int e = 0; e < W::holds; ++e)
          if (const int j = w * W::holds + e; at.row + i < a.rows && at.column + j < a.columns)
            t[0].x[i][w] |= W::bits(a.x[std::int64_t(at.row + i) * a.columns + at.column + j]) << 16 * e;
      }
      __syncwarp();  // a row at a time: loading all of them at once would spill
    }
  }
}

}  // namespace headroom::quantise
