// quantise on a card. A block takes a tile of 128 × 128 numbers, a thread 8 × 8 of it, which stay in registers between finding the largest
// and rounding. Scales that reach further than a tile come from maxima that a launch over the same tiles took before.
#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/vec.cuh"
#include "ops/quantise/encode.h"
#include "ops/quantise/impl.h"
#include "ops/swiglu/element.cuh"

namespace headroom::quantise {

namespace {

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
  int rows, columns;
  unsigned tiles;  // in a row of tiles
  bool whole;      // pieces of 16 bytes and groups of 8 numbers end inside or outside, never across an edge
  bool backwards;  // the last tile first: what was measured last is in the cache still
  Copy as_is, transposed;
  std::uint32_t *all, *of_rows, *of_columns;  // magnitudes as FP32 bits: maxima beyond a tile; nullptr: not needed
  unsigned long long* counts;
};

// Magnitudes of neighbours in a 32-bit word: two of a 16-bit type, one of FP32. They order as their bits do.
template <class T>
struct Word {
  static constexpr int holds = 4 / int(sizeof(T)), count = own / holds;  // of a thread's row
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
  static __device__ std::uint32_t wide(std::uint32_t m) {  // of one, as FP32
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

// Where a tile's numbers come from. row(): eight of a row, inside the tensor and aligned, of each tile that a block takes; value(): one.
template <class T>
struct Stored {
  static constexpr int tiles = 1;
  static __device__ void row(const Args<T>& a, std::int64_t row, int column, std::uint32_t (&to)[1][Word<T>::count]) {
    load_words<T>(a.x + row * a.columns + column, to[0]);
  }
  static __device__ float value(const Args<T>& a, int, std::int64_t row, int column) { return widen(a.x[row * a.columns + column]); }
};

template <class T>
struct SwigluProduct {  // of x = gate and up beside each other, rounded to T as swiglu_fwd stores it
  static constexpr int tiles = 1;
  static __device__ void row(const Args<T>& a, std::int64_t row, int column, std::uint32_t (&to)[1][Word<T>::count]) {
    const T* gate = a.x + row * 2 * a.columns + column;
    const Pack<float, own> g = widened(load<own>(gate)), u = widened(load<own>(gate + a.columns));
    Pack<float, own> y;
#pragma unroll
    for (int j = 0; j < own; ++j) y.at[j] = swiglu::product_of(g.at[j], u.at[j]);
    words_of(rounded<T>(y), to[0]);
  }
  static __device__ float value(const Args<T>& a, int, std::int64_t row, int column) {
    const T* gate = a.x + row * 2 * a.columns + column;
    return widened(rounded<T>(swiglu::product_of(widened(gate[0]), widened(gate[a.columns]))));
  }
};

template <class T>
struct SwigluGradient {  // of x = gate and up beside each other and of dact, as swiglu_bwd stores it: one tile of gate's half, one of up's
  static constexpr int tiles = 2;
  static __device__ void row(const Args<T>& a, std::int64_t row, int column, std::uint32_t (&to)[2][Word<T>::count]) {
    const int half = a.columns / 2;
    const T* gate = a.x + row * a.columns + column;
    const Pack<float, own> g = widened(load<own>(gate)), u = widened(load<own>(gate + half)),
                           d = widened(load<own>(a.dact + row * half + column));
    Pack<float, own> dg, du;
#pragma unroll
    for (int j = 0; j < own; ++j) {
      const swiglu::ElementGradient e = swiglu::gradient_of(g.at[j], u.at[j], d.at[j]);
      dg.at[j] = e.gate, du.at[j] = e.up;
    }
    words_of(rounded<T>(dg), to[0]);
    words_of(rounded<T>(du), to[1]);
  }
  static __device__ float value(const Args<T>& a, int tile, std::int64_t row, int column) {  // column: of gate's half, for both
    const int half = a.columns / 2;
    const T* gate = a.x + row * a.columns + column;
    const auto e = swiglu::gradient_of(widened(gate[0]), widened(gate[half]), widened(a.dact[row * half + column]));
    return widened(rounded<T>(tile ? e.up : e.gate));
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
template <class T>
__device__ Place8 place_in(const Args<T>& a, bool backwards) {
  const int group = int(threadIdx.x) % across, rows_group = int(threadIdx.x) / across;
  const unsigned tile = backwards ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int down = int(tile / a.tiles), right = int(tile % a.tiles);
  return {group, rows_group, down * side + rows_group * own, right * side + group * own, down, right};
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
  std::uint32_t rows[row_words];  // of a 16-bit type, two in a word
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

// Two numbers that are finite, as encode() rounds them.
template <class E>
__device__ std::uint32_t encode_two(float low, float high) {
#if __CUDA_ARCH__ >= 890
  std::uint16_t two;
  if constexpr (Bits<E>::mantissa == 3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(two) : "f"(low), "f"(high));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %2, %1;" : "=h"(two) : "f"(low), "f"(high));
  return two;
#else
  return encode<E>(low, 1).bits | std::uint32_t(encode<E>(high, 1).bits) << 8;
#endif
}

template <class E>
__device__ void put(uint2& eight, int at, float low, float high) {  // at: even, known when compiled
  (at < 4 ? eight.x : eight.y) |= encode_two<E>(low, high) << at % 4 * 8;
}

__device__ int nonzero_codes(uint2 v) {
  const auto in = [](std::uint32_t w) { return __popc(((w & 0x7f7f7f7fu) + 0x7f7f7f7fu) & 0x80808080u); };
  return in(v.x) + in(v.y);
}

__device__ int place_of(int group, int j, int rows_group) { return (group * own + j) * side + (rows_group ^ group) * own; }

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

// The transposed tile, from the room to its place.
template <class T>
__device__ void write_lines(const Args<T>& a, int row0, int column0, const Room<T>& room) {
#pragma unroll
  for (int n = 0; n < side * side / 16 / threads; ++n) {
    const int piece = int(threadIdx.x) + n * threads, line = piece / 8, u = piece % 8, of = line / own;  // 16 numbers of a line
    uint4 v = *reinterpret_cast<const uint4*>(room.codes + line * side + (u ^ of / 2) * 16);
    if (of % 2) v = uint4{v.z, v.w, v.x, v.y};
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
__global__ void __launch_bounds__(threads, sizeof(T) == 2 && Source::tiles == 1 ? 3 : 2) quantise_tile(const __grid_constant__ Args<T> a) {
  using W = Word<T>;
  constexpr int tiles = Source::tiles;
  __shared__ __align__(16) Room<T> room[tiles];
  const int thread = int(threadIdx.x), apart = a.columns / tiles;  // columns from one of the block's tiles to the next
  const Place8 at = place_in(a, a.backwards);
  if (thread == 0) room[0].clipped = room[0].flushed = room[0].nan = 0;
  Tile<T> t[tiles];
  load_tiles<T, Source>(a, at, t);
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

constexpr int line_threads = 128;

// quantise_lines — the copy as it is with a scale a row, and no other: a block takes a row, so it needs no maxima from before.
//   reads  x once, kept in shared memory     writes  as quantise     numerics  as quantise     limit  bandwidth
template <class T, class A>
__global__ void __launch_bounds__(line_threads) quantise_lines(const __grid_constant__ Args<T> a) {
  using W = Word<T>;
  extern __shared__ __align__(16) std::uint32_t line[];
  __shared__ std::uint32_t of_warps[line_threads / 32];
  __shared__ unsigned clipped, flushed, nan;
  const std::int64_t first = std::int64_t(blockIdx.x) * a.columns;
  const int pieces = a.columns / own;
  if (threadIdx.x == 0) clipped = flushed = nan = 0;
  std::uint32_t largest = 0;
  bool special = false;
  for (int p = int(threadIdx.x); p < pieces; p += line_threads) {
    std::uint32_t x[W::count], m = 0;
    load_words<T>(a.x + first + std::int64_t(p) * own, x);
#pragma unroll
    for (int w = 0; w < W::count; ++w) {
      line[p * W::count + w] = x[w];
      m = W::max(m, W::magnitude(x[w]));
    }
    if (W::any_infinite(m)) {
      special = true, m = 0;
#pragma unroll
      for (int w = 0; w < W::count; ++w) m = W::max(m, W::finite(W::magnitude(x[w])));
    }
    largest = W::max(largest, m);
  }
  if constexpr (W::holds == 2) largest = ::max(largest & 0xffffu, largest >> 16);
  largest = __reduce_max_sync(~0u, largest);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < line_threads / 32; ++w) largest = ::max(largest, of_warps[w]);
  const float scale = scale_of<A>(W::wide(largest)), inverse = 1 / scale;
  if (threadIdx.x == 0) a.as_is.scale[blockIdx.x] = scale;
  int lost = 0;
  for (int p = int(threadIdx.x); p < pieces; p += line_threads) {  // a thread's own pieces: no barrier needed
    std::uint32_t x[W::count];
#pragma unroll
    for (int w = 0; w < W::count; ++w) x[w] = line[p * W::count + w];
    uint2 codes = {};
    if (!special) {
#pragma unroll
      for (int j = 0; j < own; j += 2) put<A>(codes, j, W::value(x, j) * inverse, W::value(x, j + 1) * inverse);
#pragma unroll
      for (int w = 0; w < W::count; ++w) lost += W::nonzero(W::magnitude(x[w]));
      lost -= nonzero_codes(codes);
    } else {
#pragma unroll
      for (int j = 0; j < own; ++j) {
        const Encoded v = encode<A>(W::special_value(x, j), inverse);
        (j < 4 ? codes.x : codes.y) |= std::uint32_t(v.bits) << j % 4 * 8;
        lost += v.flushed;
        if (v.clipped) atomicAdd(&clipped, 1u);
        if (v.nan) atomicAdd(&nan, 1u);
      }
    }
    *reinterpret_cast<uint2*>(a.as_is.values + first + std::int64_t(p) * own) = codes;
  }
  if (!a.counts) return;
  const unsigned of_warp = __reduce_add_sync(~0u, unsigned(lost));
  if (threadIdx.x % 32 == 0 && of_warp) atomicAdd(&flushed, of_warp);
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) atomicAdd(a.counts + Count::numbers, (unsigned long long)a.rows * (unsigned long long)a.columns);
  if (clipped) atomicAdd(a.counts + Count::clipped, (unsigned long long)clipped);
  if (flushed) atomicAdd(a.counts + Count::flushed, (unsigned long long)flushed);
  if (nan) atomicAdd(a.counts + Count::nan, (unsigned long long)nan);
}

Copy copy_of(const Scaled& y) {
  if (!y) return {};
  const bool strided = y.kind == ScaleKind::run || y.kind == ScaleKind::block;
  return {y.values.as<std::uint8_t>(), y.scale.as<float>(), y.kind, strided ? int(y.scale.stride[0]) : 0};
}

template <class F>
void with_format(const Scaled& y, F&& f) {
  if (!y) return f.template operator()<LeftOut>();
  y.values.dtype == DType::e5m2 ? f.template operator()<e5m2>() : f.template operator()<e4m3>();
}

}  // namespace

namespace {

template <class T, class Source>
void start(const Request& r, const Args<T>& a, const Tensor& maxima, cudaStream_t stream) {
  constexpr std::int64_t most_in_shared = 96 << 10;
  if constexpr (std::is_same_v<Source, Stored<T>>)
    if (a.whole && !r.transposed && r.as_is.kind == ScaleKind::row && a.columns * std::int64_t(sizeof(T)) <= most_in_shared)
      return with_format(r.as_is, [&]<class A>() {
        if constexpr (eight_bits<A>)
          launch(stream, quantise_lines<T, A>, {grid_of(a.rows), dim3(line_threads), std::size_t(a.columns) * sizeof(T)}, a);
      });
  const Grid grid{grid_of(std::int64_t(a.tiles) * ceil_div(std::int64_t(a.rows), scale_block)), dim3(threads)};
  if (maxima) {
    cuda(cudaMemsetAsync(maxima.data, 0, maxima.bytes(), stream));
    launch(stream, quantise_measure<T, Source>, grid, a);
  }
  with_format(r.as_is, [&]<class A>() {
    with_format(r.transposed, [&]<class B>() {
      if constexpr (eight_bits<A> || eight_bits<B>) launch(stream, quantise_tile<T, A, B, Source>, grid, a);
    });
  });
}

bool in_pieces(const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0; }

}  // namespace

void quantise_cuda(const Request& r, const Tensor& maxima, Context& ctx) {
  const std::int64_t rows = r.rows(), columns = r.columns();
  check(rows < 1ll << 31 && columns < 1ll << 31, Code::unsupported, "quantise: {} x {}; a card takes sides below 2^31", rows, columns);
  if (rows == 0 || columns == 0) return;
  const bool whole = rows % 16 == 0 && columns % 16 == 0 && in_pieces(r.x) && in_pieces(r.dact) && in_pieces(r.as_is.values) &&
                     in_pieces(r.transposed.values);
  check(whole || r.of == Of::stored, Code::unsupported, "quantise: what is quantised as it is made must be aligned to 16 bytes");
  const CardMaxima reach = maxima_on_card(r);
  auto* const first = maxima.as<std::uint32_t>();
  const auto stream = cuda_stream(ctx.stream);
  const auto args = [&]<class T>(std::int64_t tiles) {
    return Args<T>{.x = r.x.as<T>(),
                   .dact = r.dact.as<T>(),
                   .rows = int(rows),
                   .columns = int(columns),
                   .tiles = unsigned(tiles),
                   .whole = whole,
                   .backwards = reach.count() > 0,
                   .as_is = copy_of(r.as_is),
                   .transposed = copy_of(r.transposed),
                   .all = reach.all ? first : nullptr,
                   .of_rows = reach.rows ? first + reach.all : nullptr,
                   .of_columns = reach.columns ? first + reach.all + reach.rows : nullptr,
                   .counts = reinterpret_cast<unsigned long long*>(r.counts.data)};
  };
  const std::int64_t tiles = ceil_div(columns, scale_block);
  switch (r.of) {
    case Of::stored:
      return with_float(r.x.dtype, [&]<class T>() { start<T, Stored<T>>(r, args.template operator()<T>(tiles), maxima, stream); });
    case Of::swiglu: return start<bf16, SwigluProduct<bf16>>(r, args.template operator()<bf16>(tiles), maxima, stream);
    case Of::swiglu_gradient: return start<bf16, SwigluGradient<bf16>>(r, args.template operator()<bf16>(tiles / 2), maxima, stream);
  }
}

}  // namespace headroom::quantise
