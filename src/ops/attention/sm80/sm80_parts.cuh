// sm80_parts.cuh — products of fp32 by the matrix unit: a number is the sum of two of tf32, x = high + low, and a product three:
// high·high + high·low + low·high. high is x rounded to nearest, so that low has either sign and low·low, 2^-22 of the product at most, no bias. The
// unit cuts its sums towards 0, so it adds few products, from 0, the small ones first; fp32 additions, rounded to nearest, add up the rest.
#pragma once
#include "ops/attention/sm80/sm80_products.cuh"

namespace headroom::attention::blocks::sm80 {

template <int n>
struct Parts {
  std::uint32_t high[n], low[n];
  __device__ __forceinline__ void set(int i, std::uint32_t x) {
    high[i] = (x + 0x1000) & 0xffffe000;
    low[i] = __float_as_uint(__uint_as_float(x) - __uint_as_float(high[i]));
  }
  __device__ __forceinline__ void operator=(const std::uint32_t (&x)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) set(i, x[i]);
  }
};

// to[m] += x[.][m] · y[.]: 16 rows by 16 columns for each m.
template <int steps, int high, int columns>
__device__ __forceinline__ void add_products(float (&to)[high][columns], int column, const Parts<4> (&x)[steps][high],
                                             const Parts<4> (&y)[steps]) {
  float sum[high][8];
#pragma unroll
  for (int kind = 0; kind < 3; ++kind)
#pragma unroll
    for (int k = 0; k < steps; ++k)
#pragma unroll
      for (int m = 0; m < high; ++m) {
        const auto& left = kind == 0 ? x[k][m].low : x[k][m].high;
        const auto& right = kind == 1 ? y[k].low : y[k].high;
        if (kind == 0 && k == 0) {
          warp::multiply_first<float>(&sum[m][0], left, right[0], right[1]);
          warp::multiply_first<float>(&sum[m][4], left, right[2], right[3]);
        } else {
          warp::multiply<float>(&sum[m][0], left, right[0], right[1]);
          warp::multiply<float>(&sum[m][4], left, right[2], right[3]);
        }
      }
#pragma unroll
  for (int m = 0; m < high; ++m)
#pragma unroll
    for (int i = 0; i < 8; ++i) to[m][column / 2 + i] += sum[m][i];
}

// s = rows of `a` times rows of `b`, transposed; a points to the warp's first row.
template <class S>
__device__ __forceinline__ void rows_times_rows_in_parts(float (&s)[S::high][S::scores], const float* a, const float* b) {
  constexpr int steps = S::steps_s;
  const int lane = threadIdx.x % 32;
  const float* const from_a = a + lane % 16 * S::row_pitch + lane / 16 * 4;
  const float* const from_b = b + (lane / 16 * 8 + lane % 8) * S::row_pitch + lane / 8 % 2 * 4;
#pragma unroll
  for (int m = 0; m < S::high; ++m)
#pragma unroll
    for (int i = 0; i < S::scores; ++i) s[m][i] = 0;
#pragma unroll S::unroll
  for (int d = 0; d < S::dim; d += 8 * steps) {
    Parts<4> x[steps][S::high];
#pragma unroll
    for (int k = 0; k < steps; ++k)
#pragma unroll
      for (int m = 0; m < S::high; ++m) {
        std::uint32_t whole[4];
        warp::load_blocks(whole, from_a + 16 * m * S::row_pitch + d + 8 * k);
        x[k][m] = whole;
      }
#pragma unroll
    for (int j = 0; j < S::columns; j += 16) {
      Parts<4> y[steps];
#pragma unroll
      for (int k = 0; k < steps; ++k) {
        std::uint32_t whole[4];
        warp::load_blocks(whole, from_b + j * S::row_pitch + d + 8 * k);
        y[k] = whole;
      }
      add_products(s, j, x, y);
    }
  }
}

// o += s times rows of `b`.
template <class S>
__device__ __forceinline__ void scores_times_rows_in_parts(float (&o)[S::high][S::outputs], const float (&s)[S::high][S::scores],
                                                           const float* b) {
  constexpr int steps = S::steps_o;
  const int lane = threadIdx.x % 32;
  const float* const from = b + lane % 4 * 2 * S::row_pitch + lane / 4;
#pragma unroll
  for (int k0 = 0; k0 < S::columns; k0 += 8 * steps) {
    Parts<4> x[steps][S::high];
#pragma unroll
    for (int k = 0; k < steps; ++k)
#pragma unroll
      for (int m = 0; m < S::high; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) x[k][m].set(i, __float_as_uint(s[m][k0 / 2 + 4 * k + i / 2 + i % 2 * 2]));
#pragma unroll
    for (int d = 0; d < S::dim; d += 16) {
      Parts<4> y[steps];
#pragma unroll
      for (int k = 0; k < steps; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) y[k].set(i, __float_as_uint(from[(k0 + 8 * k + i % 2) * S::row_pitch + d + i / 2 * 8]));
      add_products(o, d, x, y);
    }
  }
}

}  // namespace headroom::attention::blocks::sm80
