// softmax.cuh — the online softmax of a warpgroup's scores, two rows per thread, in an accumulator's registers.
#pragma once
#include <numbers>

#include "gpu/mma.cuh"
#include "gpu/tanh.cuh"

namespace headroom::attention {

// Keys outside [first_r, end_r) are not seen by row r of this thread. `column` is the key of its first score.
template <bool lower, int n>
__device__ void apply_mask(float (&s)[n], int column, const int (&first)[2], const int (&end)[2]) {
#pragma unroll
  for (int j = 0; j < n / 4; ++j)
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = column + 8 * j + i;
        if (key >= end[r] || (lower && key < first[r])) s[4 * j + 2 * r + i] = -INFINITY;
      }
}

// Largest of the n/2 scores of row r. Floats compare like integers unless both are negative, then the other way round:
// three-way integer maxima take half the instructions of float ones, so this detour pays.
template <int n>
__device__ float largest(const float (&s)[n], int r) {
  const auto bits = [&](int i) { return __float_as_int(s[i]); };
  int high = max(bits(2 * r), bits(2 * r + 1));
#pragma unroll
  for (int j = 1; j < n / 4; ++j) high = __vimax3_s32(high, bits(4 * j + 2 * r), bits(4 * j + 2 * r + 1));
  if (__any_sync(~0u, high < 0)) {  // some lane saw only negative scores: the smallest integer is the largest float
    int low = min(bits(2 * r), bits(2 * r + 1));
#pragma unroll
    for (int j = 1; j < n / 4; ++j) low = __vimin3_s32(low, bits(4 * j + 2 * r), bits(4 * j + 2 * r + 1));
    if (high < 0) high = low;
  }
  return __int_as_float(high);
}

struct OfRows {              // the end of two rows
  float inverse[2], lse[2];  // 1 / Σ and its natural logarithm; 0 and -inf for a row that saw no key

  // A sink takes its share of row r's sum. From the logarithm: both may be far from 0, either infinite.
  __device__ void join(float sink, int r) {
    const float top = fmaxf(lse[r], sink);
    if (fabsf(top) == INFINITY) {  // +: the sink takes all; -: there is neither key nor sink
      inverse[r] = 0;
      lse[r] = top;
    } else {
      const float keys = __expf(lse[r] - top), sum = keys + __expf(sink - top);
      inverse[r] *= __fdividef(keys, sum);
      lse[r] = top + __logf(sum);
    }
  }
  __device__ void join(float sink) {
    join(sink, 0);
    join(sink, 1);
  }
};

// What has been seen of two rows so far. `maximum` is the reference of the exponentials, not always the true maximum: it stays while the true one
// exceeds it by no more than `slack`, so O is hardly ever rescaled; weights are 2^lift times what they mean, where their format asks for it (both log2).
template <class Range>
struct RowsWithin {
  using Result = OfRows;
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

  // s ← exp2(scale · (s − maximum)) in place; returns what O must be multiplied with, exactly 1 nearly always.
  template <bool maxima_first, int n>
  __device__ float2 update(float (&s)[n], float scale) {
    float factor[2], high[2];
    if constexpr (maxima_first) high[0] = largest(s, 0), high[1] = largest(s, 1);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (!maxima_first) high[r] = largest(s, r);
      high[r] = fmaxf(high[r], maximum[r]);
      high[r] = fmaxf(high[r], __shfl_xor_sync(~0u, high[r], 1));
      high[r] = fmaxf(high[r], __shfl_xor_sync(~0u, high[r], 2));
      if (!((high[r] - maximum[r]) * scale > Range::slack)) high[r] = maximum[r];  // also when both are -inf
      const float reference = high[r] == -INFINITY ? 0.f : high[r], offset = reference * scale - Range::lift;
      factor[r] = exp2_fast((maximum[r] - reference) * scale);  // 0 for the first tile
      maximum[r] = high[r];
      float total = 0;
#pragma unroll
      for (int j = 0; j < n / 4; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = s[4 * j + 2 * r + i];
          total += x = exp2_fast(fmaf(x, scale, -offset));
        }
      sum[r] = sum[r] * factor[r] + total;
    }
    return {factor[0], factor[1]};
  }

  __device__ Result finish(float scale) const {  // all four threads of a row get the same
    Result result;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = sum[r];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      const bool empty = maximum[r] == -INFINITY;
      if constexpr (Range::exact) {
        result.inverse[r] = empty ? 0 : 1 / total;
        result.lse[r] = empty ? -INFINITY : (__fmul_rn(maximum[r], scale) + log2f(total)) * std::numbers::ln2_v<float>;
      } else {
        result.inverse[r] = empty ? 0 : __fdividef(1, total);  // a NaN stays one
        result.lse[r] = empty ? -INFINITY : (maximum[r] * scale + (__log2f(total) - Range::lift)) * std::numbers::ln2_v<float>;
      }
    }
    return result;
  }
};
struct WideRange {  // weights up to 2^8: no more rounding in floating point, far from overflow
  static constexpr float slack = 8, lift = 0;
  static constexpr bool exact = false;
};
using Rows = RowsWithin<WideRange>;
struct ExactRange : WideRange {  // sum and logarithm of a row as exact as fp32 has them
  static constexpr bool exact = true;
};
using ExactRows = RowsWithin<ExactRange>;

}  // namespace headroom::attention
