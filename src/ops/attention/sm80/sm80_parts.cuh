// sm80_parts.cuh — products of fp32 by the matrix unit: a number is the sum of two of tf32, x = high + low, and a product three:
// high·high + high·low + low·high. high is x rounded to nearest, so that low has either sign and low·low, 2^-22 of the product at most, no bias. The
// unit cuts its sums towards 0, so it adds few products, from 0, the small ones first; fp32 additions, rounded to nearest, add up the rest.
#pragma once
#include "ops/attention/sm80/blocks.cuh"

namespace headroom::attention::blocks::sm80 {

__device__ __forceinline__ uint2 two_at(const void* values) { return *reinterpret_cast<const uint2*>(values); }

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

// to[m] += x[.][m] · y[group][.]: 16 rows by 16 columns for each m and group, side by side. Of the small products those with the low part of x come
// first, or those with the low part of y: one product has the same bits from either side, if the low parts of one factor are always first.
template <bool low_of_x_first, int groups, int steps, int high, int columns>
__device__ __forceinline__ void add_products(float (&to)[high][columns], int column, const Parts<4> (&x)[steps][high],
                                             const Parts<4> (&y)[groups][steps]) {
  float sum[high][groups][8];
#pragma unroll
  for (int kind = 0; kind < 3; ++kind)
#pragma unroll
    for (int k = 0; k < steps; ++k)
#pragma unroll
      for (int m = 0; m < high; ++m)
#pragma unroll
        for (int g = 0; g < groups; ++g) {
          constexpr int of_x = low_of_x_first ? 0 : 1;
          const auto& left = kind == of_x ? x[k][m].low : x[k][m].high;
          const auto& right = kind == 1 - of_x ? y[g][k].low : y[g][k].high;
          float(&s)[8] = sum[m][g];
          if (kind == 0 && k == 0) {
            warp::multiply_first<float>(s, left, right[0], right[1]);
            warp::multiply_first<float>(s + 4, left, right[2], right[3]);
          } else {
            warp::multiply<float>(s, left, right[0], right[1]);
            warp::multiply<float>(s + 4, left, right[2], right[3]);
          }
        }
#pragma unroll
  for (int m = 0; m < high; ++m)
#pragma unroll
    for (int g = 0; g < groups; ++g)
#pragma unroll
      for (int i = 0; i < 8; ++i) to[m][column / 2 + 8 * g + i] += sum[m][g][i];
}

// s = rows of `a` times rows of `b`, transposed; a points to the warp's first row. `steps` of 8 are summed by the unit.
template <class S, bool low_of_a_first, int steps, int high, int scores>
__device__ __forceinline__ void rows_times_rows_in_parts(float (&s)[high][scores], const float* a, const float* b) {
  constexpr int groups = 2 * scores % (16 * S::groups) == 0 ? S::groups : 1;
  const int lane = threadIdx.x % 32;
  const float* const from_a = a + lane % 16 * S::row_pitch + lane / 16 * 4;
  const float* const from_b = b + (lane / 16 * 8 + lane % 8) * S::row_pitch + lane / 8 % 2 * 4;
#pragma unroll
  for (int m = 0; m < high; ++m)
#pragma unroll
    for (int i = 0; i < scores; ++i) s[m][i] = 0;
#pragma unroll S::unroll
  for (int d = 0; d < S::dim; d += 8 * steps) {
    Parts<4> x[steps][high];
#pragma unroll
    for (int k = 0; k < steps; ++k)
#pragma unroll
      for (int m = 0; m < high; ++m) {
        std::uint32_t whole[4];
        warp::load_blocks(whole, from_a + 16 * m * S::row_pitch + d + 8 * k);
        x[k][m] = whole;
      }
#pragma unroll
    for (int j = 0; j < 2 * scores; j += 16 * groups) {
      Parts<4> y[groups][steps];
#pragma unroll
      for (int g = 0; g < groups; ++g)
#pragma unroll
        for (int k = 0; k < steps; ++k) {
          std::uint32_t whole[4];
          warp::load_blocks(whole, from_b + (j + 16 * g) * S::row_pitch + d + 8 * k);
          y[g][k] = whole;
        }
      add_products<low_of_a_first>(s, j, x, y);
    }
  }
}

// o += A times rows of `b`, of which there are `summed`, as times_rows.
template <class S, int summed, int high, int outputs, class Load>
__device__ __forceinline__ void times_rows_in_parts(float (&o)[high][outputs], Load load, const float* b) {
  constexpr int steps = S::steps_o, groups = 2 * outputs % (16 * S::groups) == 0 ? S::groups : 1;
  const int lane = threadIdx.x % 32;
  const float* const from = b + lane % 4 * 2 * S::row_pitch + lane / 4 * (S::in_fours ? 2 : 1);
#pragma unroll
  for (int k0 = 0; k0 < summed; k0 += 8 * steps) {
    Parts<4> x[steps][high];
#pragma unroll
    for (int k = 0; k < steps; ++k)
#pragma unroll
      for (int m = 0; m < high; ++m) {
        std::uint32_t whole[4];
        load(whole, m, k0 + 8 * k);
        x[k][m] = whole;
      }
#pragma unroll
    for (int d = 0; d < 2 * outputs; d += 16 * groups) {
      Parts<4> y[groups][steps];
#pragma unroll
      for (int g = 0; g < groups; ++g)
#pragma unroll
        for (int k = 0; k < steps; ++k) {
          const float* const at = from + (k0 + 8 * k) * S::row_pitch + d + 16 * g;
          std::uint32_t whole[4];
          if constexpr (S::in_fours) {
            const uint2 one = two_at(at), next = two_at(at + S::row_pitch);
            whole[0] = one.x, whole[1] = next.x, whole[2] = one.y, whole[3] = next.y;
          } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) whole[i] = __float_as_uint(at[i % 2 * S::row_pitch + i / 2 * 8]);
          }
          y[g][k] = whole;
        }
      add_products<true>(o, d, x, y);
    }
  }
}

}  // namespace headroom::attention::blocks::sm80
