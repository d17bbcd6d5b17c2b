// by_place.cuh — dropout and ALiBi's falls, of the scores in an accumulator. Its rows (queries, or keys where scores are transposed) are two to a thread.
#pragma once
#include <cuda_fp16.h>

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
    attention::let_fall(scores, of, column, [&](int i) { return scores[i]; });
  }
};

// A mask of two draws in one word: all 16 bits are set where a draw is not below `below`. The highest bit of a draw does not count. Numbers of 15 bits have
// the order of FP16; those past 0x7c00 are NaNs there, which the comparison takes as greater. One instruction compares two.
__device__ __forceinline__ std::uint32_t not_below(std::uint32_t draws, std::uint32_t below) {
  static_assert(draw_steps == 1 << 15);
  const auto halves = [](std::uint32_t x) { return *reinterpret_cast<const __half2*>(&x); };
  return __hgeu2_mask(__habs2(halves(draws)), halves(below * 0x10001));
}

// Masks of four pairs of neighbours, as operands hold them: all 16 bits are set where a probability is kept. The first pair is in row `row` of sixteen, at
// column `column` of sixteen; the second is in row + 8, and the other two are eight columns further on.
template <bool rows_are_keys>
__device__ __forceinline__ void keep(std::uint32_t (&pairs)[4], const HeadDraws& draws, std::uint32_t below, int row, int column) {
  TwoWords x[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) x[e] = rows_are_keys ? draws.at(column + e, row) : draws.at(row, column + e);
#pragma unroll
  for (int f = 0; f < 4; ++f) {
    const int word = rows_are_keys ? f % 2 : f / 2, half = rows_are_keys ? f / 2 : f % 2;
    pairs[f] = not_below(__byte_perm(x[0].word[word], x[1].word[word], half ? 0x7632 : 0x5410), below);
  }
}

}  // namespace headroom::attention::sm90
