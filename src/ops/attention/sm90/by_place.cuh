// by_place.cuh — dropout and ALiBi's falls, of the scores in an accumulator. Its rows (queries, or keys where scores are transposed) are two to a thread.
#pragma once
#include "gpu/mma.cuh"
#include "ops/attention/dropout.h"
#include "ops/attention/fall.cuh"

namespace headroom::attention::sm90 {

// How scores of a thread's two rows fall. `by`: from a fall to what it is in the scores.
template <bool rows_are_keys>
struct Falls {
  Fall of[2];
  Falls() = default;
  __device__ __forceinline__ Falls(const Alibi& a, int batch, int head, int row, int end, float by) {
#pragma unroll
    for (int r = 0; r < 2; ++r) of[r] = Fall::of<rows_are_keys>(a, batch, head, min(row + 8 * r, end - 1), by);
  }
  template <int n>
  __device__ __forceinline__ void let_fall(float (&scores)[n], int column) const {  // `column`: of the first score
#pragma unroll
    for (int i = 0; i < n; ++i) scores[i] -= of[i / 2 % 2].at(column, i / 4 * 8 + i % 2);
  }
};

// drop(i) for each score that is dropped. `row`: this thread's first, of sixteen; `column`: of its first score, of sixteen.
template <bool rows_are_keys, int n, class Drop>
__device__ __forceinline__ void each_dropped(const HeadDraws& draws, std::uint32_t below, int row, int column, Drop&& drop) {
#pragma unroll
  for (int i = 0; i < n; i += 8)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int there = column + 2 * i + e;
      const TwoWords x = rows_are_keys ? draws.at(there, row) : draws.at(row, there);
      constexpr int row_8 = 2, column_8 = 4, first = rows_are_keys ? column_8 : row_8, second = rows_are_keys ? row_8 : column_8;
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        drop(i + e + w * second, (x.word[w] & 0xffff) < below);
        drop(i + e + w * second + first, x.word[w] < below << 16);
      }
    }
}

}  // namespace headroom::attention::sm90
