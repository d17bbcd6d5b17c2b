// sm80_products.cuh — the products of flash_sm80, by the warp's matrix instruction.
//
// A warp has 16 or 32 rows of the block's. Scores stay in its registers: S turns into P, and P (or dS) is already the left operand of
// the next product. In tf32 that product takes the keys of each eight in the order 0 2 4 6 1 3 5 7, on both sides alike, and backward its 16 columns in the
// order 0 2 … 14 1 3 … 15: so two of a lane's values lie side by side where they are read, and four where they go. (Forward lost 2 to 4 % by it.)
#pragma once
#include <numbers>

#include "ops/attention/sm80/blocks.cuh"
#include "ops/attention/sm80/blocks_tiles.h"
#include "ops/attention/sm80/sm80_parts.cuh"

namespace headroom::attention::blocks::sm80 {

constexpr float log2e = std::numbers::log2e_v<float>;

template <class Tiles, bool backward>
struct Shape {
  using T = typename Tiles::T;
  static constexpr int dim = Tiles::dim, warps = Tiles::warps, threads = 32 * warps, rows = Tiles::rows, columns = Tiles::columns;
  static constexpr int high = rows / warps / 16;                 // blocks of 16 rows that a warp has
  static constexpr int scores = columns / 2, outputs = dim / 2;  // a lane's part of 16 rows
  static constexpr int depth = warp::depth<T>, row_pitch = pitch<T>(dim), p_pitch = pitch<T>(columns);
  static constexpr int steps_s = Tiles::steps_s, steps_p = Tiles::steps_p, steps_o = Tiles::steps_o;
  static constexpr int unroll = Tiles::unroll, groups = Tiles::groups;
  static constexpr bool in_parts = Tiles::in_parts;             // fp32 as three tf32 products: sm80_parts.cuh
  static constexpr bool rounds = sizeof(T) == 4 && !in_parts;   // what has been fetched, to tf32
  static constexpr bool in_fours = backward && sizeof(T) == 4;  // a lane's values
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
    for (int m = 0; m < S::high; ++m) warp::load_blocks(x[m], from_a + 16 * m * S::row_pitch + d);
#pragma unroll
    for (int j = 0; j < S::columns; j += 16) {
      std::uint32_t y[4];
      warp::load_blocks(y, from_b + j * S::row_pitch + d);
#pragma unroll
      for (int m = 0; m < S::high; ++m) {
        warp::multiply<T>(&s[m][j / 2], x[m], y[0], y[1]);
        warp::multiply<T>(&s[m][j / 2 + 4], x[m], y[2], y[3]);
      }
    }
  }
}

// The scores of the warp's rows, Q Kᵀ or its transpose. In parts they have the same bits forward and backward, whichever side is `a`: then
// their rounding is in LSE too, and cancels in P.
template <class S, bool a_is_q, class T = typename S::T>
__device__ __forceinline__ void scores_of(float (&s)[S::high][S::scores], const T* a, const T* b) {
  if constexpr (S::in_parts)
    rows_times_rows_in_parts<S, a_is_q, S::steps_s>(s, a, b);
  else
    rows_times_rows<S>(s, a, b);
}
// dP, likewise; nothing has to have the same bits.
template <class S, class T = typename S::T>
__device__ __forceinline__ void slopes_of(float (&s)[S::high][S::scores], const T* a, const T* b) {
  if constexpr (S::in_parts)
    rows_times_rows_in_parts<S, true, S::steps_p>(s, a, b);
  else
    rows_times_rows<S>(s, a, b);
}

// The scores of columns [k, k + depth) as a left operand, rounded to T.
template <class S, class T = typename S::T>
__device__ __forceinline__ void operand(std::uint32_t (&x)[4], const float (&s)[S::scores], int k) {
  const float* from = s + k / 2;
  if constexpr (sizeof(T) == 4) {
    x[0] = __float_as_uint(from[0]), x[1] = __float_as_uint(from[2]), x[2] = __float_as_uint(from[1]), x[3] = __float_as_uint(from[3]);
    if constexpr (S::rounds) warp::round<T>(x);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = warp::pair<T>(from[2 * i], from[2 * i + 1]);
  }
}

// In fours: of a lane's part of 16 rows, the four values of one of its rows (r = 0: lane / 4, r = 1: that + 8) in columns d + lane % 4 · 4 and on.
template <int outputs>
__device__ __forceinline__ float4 four_of(const float (&o)[outputs], int d, int r) {
  const float* const from = o + d / 2 + 2 * r;
  return make_float4(from[0], from[4], from[1], from[5]);
}
__device__ __forceinline__ float4 operator*(float4 x, float factor) {
  return make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
}

// o += A times rows of `b`, of which there are `summed`; `load` gives the left operand of 16 rows and of `depth` columns from k on.
template <class S, int summed, int high, int outputs, class Load, class T = typename S::T>
__device__ __forceinline__ void times_rows(float (&o)[high][outputs], Load load, const T* b) {
  if constexpr (S::in_parts) return times_rows_in_parts<S, summed>(o, load, b);
  const int lane = threadIdx.x % 32;
  const T* const from =
      sizeof(T) == 4 ? b + lane % 4 * 2 * S::row_pitch + lane / 4 * (S::in_fours ? 2 : 1) : b + lane % 16 * S::row_pitch + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < summed; k += S::depth) {
    std::uint32_t x[high][4];
#pragma unroll
    for (int m = 0; m < high; ++m) load(x[m], m, k);
#pragma unroll
    for (int d = 0; d < 2 * outputs; d += 16) {
      std::uint32_t y[4];
      const T* const at = from + k * S::row_pitch + d;
      if constexpr (S::in_fours) {
        const uint2 one = two_at(at), next = two_at(at + S::row_pitch);
        y[0] = one.x, y[1] = next.x, y[2] = one.y, y[3] = next.y;
      } else if constexpr (sizeof(T) == 4) {
        const auto bits = [](const T* value) { return *reinterpret_cast<const std::uint32_t*>(value); };
        y[0] = bits(at), y[1] = bits(at + S::row_pitch), y[2] = bits(at + 8), y[3] = bits(at + S::row_pitch + 8);
      } else {
        warp::load_blocks_transposed(y, at);
      }
#pragma unroll
      for (int m = 0; m < high; ++m) {
        warp::multiply<T>(&o[m][d / 2], x[m], y[0], y[1]);
        warp::multiply<T>(&o[m][d / 2 + 4], x[m], y[2], y[3]);
      }
    }
  }
}
template <class S, class T = typename S::T>
__device__ __forceinline__ void scores_times_rows(float (&o)[S::high][S::outputs], const float (&s)[S::high][S::scores], const T* b) {
  times_rows<S, S::columns>(
      o, [&](std::uint32_t(&x)[4], int m, int k) { operand<S>(x, s[m], k); }, b);
}

// The warp's scores to shared memory, [row][column], as operands need them.
template <class S, class T = typename S::T>
__device__ __forceinline__ void share(T* p, const float (&s)[S::high][S::scores]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < S::high; ++m)
#pragma unroll
    for (int i = 0; i < S::scores; i += 2) {
      T* const to = p + (16 * m + lane / 4 + i / 2 % 2 * 8) * S::p_pitch + i / 4 * 8 + lane % 4 * 2;
      if constexpr (S::rounds)
        *reinterpret_cast<uint2*>(to) = {warp::round_bits(__float_as_uint(s[m][i])), warp::round_bits(__float_as_uint(s[m][i + 1]))};
      else if constexpr (sizeof(T) == 4)
        *reinterpret_cast<float2*>(to) = {s[m][i], s[m][i + 1]};
      else
        *reinterpret_cast<std::uint32_t*>(to) = warp::pair<T>(s[m][i], s[m][i + 1]);
    }
}

// x to to[0 … 3], of which `valid` exist; `wide`: all or none, and they lie on 16 bytes.
#ifdef HEADROOM_ANY_CARD  // where one PTX is made for all cards, nothing reads the architecture: a call would not link
__device__ void add_four(float* to, float4 x, int valid, bool wide);
#else
__device__ __forceinline__ void add_four(float* to, float4 x, int valid, bool wide) {
#if __CUDA_ARCH__ >= 900
  if (wide) {
    if (valid > 0) atomicAdd(reinterpret_cast<float4*>(to), x);
    return;
  }
#endif
  if (valid > 0) atomicAdd(to, x.x);
  if (valid > 1) atomicAdd(to + 1, x.y);
  if (valid > 2) atomicAdd(to + 2, x.z);
  if (valid > 3) atomicAdd(to + 3, x.w);
}
#endif

// The scores of a whole tile, which all warps have written, times the block's rows: Σ_row p[row][column] · rows[row][d] is added, times `factor`,
// to row `column` of `to`, of which `valid` exist. Warps share out columns by 16 and, where these are too few, parts of dim.
template <class S>
__device__ __forceinline__ void add_scores_across_rows(const float* p, const float* rows, float* to, long long stride, int valid,
                                                       int head_dim, float factor, bool wide, int* not_numbers) {
  constexpr int parts = 16 * S::warps / S::columns, part = S::dim / parts;
  static_assert(parts >= 1 && part % 16 == 0);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = warp / parts * 16 + lane / 4 * 2, d0 = warp % parts * part;
  const float* const from =
      p + lane % 4 * 2 * S::p_pitch + column;  // the left operand's rows are these columns, in the same order as those of the right one
  float sum[1][part / 2] = {};
  times_rows<S, S::rows>(
      sum,
      [&](std::uint32_t(&x)[4], int, int k) {
        const uint2 one = two_at(from + k * S::p_pitch), next = two_at(from + (k + 1) * S::p_pitch);
        x[0] = one.x, x[1] = one.y, x[2] = next.x, x[3] = next.y;
      },
      rows + d0);
  report_nan<S::more>(sum, not_numbers);
#pragma unroll
  for (int d = 0; d < part; d += 16)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int first = d0 + d + lane % 4 * 4;
      if (column + r < valid) add_four(to + (column + r) * stride + first, four_of(sum[0], d, r) * factor, head_dim - first, wide);
    }
}

// One row (r = 0: g, r = 1: g + 8) of 16, times `factor`, rounded.
template <class S, class T = typename S::T>
__device__ __forceinline__ void store_row(T* to, const float (&o)[S::outputs], int r, float factor, int head_dim, bool wide) {
  constexpr int per = S::in_fours ? 4 : 2;  // values side by side
#pragma unroll
  for (int d = 0; d < S::dim; d += 4 * per) {
    const int column = d + threadIdx.x % 4 * per;
    float4 x;
    if constexpr (S::in_fours)
      x = four_of(o, d, r) * factor;
    else
      x = make_float4(o[d / 2 + 2 * r] * factor, o[d / 2 + 2 * r + 1] * factor, 0, 0);
    if (wide) {
      if (column >= head_dim) continue;
      if constexpr (S::in_fours)
        *reinterpret_cast<float4*>(to + column) = x;
      else if constexpr (sizeof(T) == 4)
        *reinterpret_cast<float2*>(to + column) = {x.x, x.y};
      else
        *reinterpret_cast<std::uint32_t*>(to + column) = warp::pair<T>(x.x, x.y);
    } else {
      if (column < head_dim) to[column] = T(x.x);
      if (column + 1 < head_dim) to[column + 1] = T(x.y);
      if (per == 4 && column + 2 < head_dim) to[column + 2] = T(x.z);
      if (per == 4 && column + 3 < head_dim) to[column + 3] = T(x.w);
    }
  }
}

// How a lane's two rows of 16 fall; `row`: the first of the 16.
template <bool rows_are_keys>
__device__ __forceinline__ void falls_of(Fall (&falls)[2], const Alibi& a, int batch, int head, int row, float factor) {
#pragma unroll
  for (int r = 0; r < 2; ++r) falls[r] = Fall::of<rows_are_keys>(a, batch, head, row + threadIdx.x % 32 / 4 + 8 * r, factor);
}

// Which of this lane's scores dropout drops: bit i of dropped[m] is score i of the m-th 16 rows. `row`: the warp's first; `column`: the tile's.
template <class S, bool rows_are_keys>
__device__ __forceinline__ void draw_dropped(unsigned (&dropped)[S::high], const HeadDraws& draws, unsigned below, int row, int column) {
  static_assert(S::scores <= 32 && S::columns % 16 == 0);
  row += threadIdx.x % 32 / 4, column += threadIdx.x % 4 * 2;
#pragma unroll
  for (int m = 0; m < S::high; ++m) {
    dropped[m] = 0;
    const auto note = [&](int i, unsigned draw) { dropped[m] |= unsigned(draw % draw_steps < below) << i; };
#pragma unroll
    for (int t = 0; t < S::columns / 8; t += 2)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int here = row + 16 * m, there = column + 8 * t + e;
        const TwoWords x = rows_are_keys ? draws.at(there, here) : draws.at(here, there);
        const int here_8 = 4 * t + e + 2, there_8 = 4 * t + e + 4;  // scores of the row that is 8 further, and of the column
        note(4 * t + e, x.word[0]);
        note(rows_are_keys ? there_8 : here_8, x.word[0] >> 16);
        note(rows_are_keys ? here_8 : there_8, x.word[1]);
        note(4 * t + e + 6, x.word[1] >> 16);
      }
  }
}

}  // namespace headroom::attention::blocks::sm80
