// How scores fall by ALiBi's slopes in a kernel's registers (alibi.h).
#pragma once
#include "ops/attention/alibi.h"

namespace headroom::attention {

struct Fall {  // what ALiBi takes from the scores of one row, or of one key
  float slope;
  int place;
  template <bool rows_are_keys>
  __device__ __forceinline__ static Fall of(const Alibi& a, int batch, int head, int row, float factor) {
    const Alibi::Spot spot = rows_are_keys ? a.of_key(batch, row) : a.of_row(batch, row);
    return {a.slope(spot, head) * factor, spot.place};
  }
  __device__ __forceinline__ float at(int first, int column) const { return slope * fabsf(float(place - first) - float(column)); }
};

// score(i) less what it falls by, for an accumulator's scores i of two rows. `column`: of a lane's first.
template <int n, class Score>
__device__ __forceinline__ void let_fall(float (&s)[n], const Fall (&falls)[2], int column, Score score) {
#pragma unroll
  for (int i = 0; i < n; ++i) s[i] = score(i) - falls[i / 2 % 2].at(column, i / 4 * 8 + i % 2);
}

}  // namespace headroom::attention
