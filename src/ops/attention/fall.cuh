// How scores fall by ALiBi's slopes in a kernel's registers (alibi.h).
#pragma once
#include "ops/attention/alibi.h"

namespace headroom::attention {

struct Fall {  // of the scores of one row, or of one key
  float slope;
  int place;
  template <bool rows_are_keys>
  __device__ __forceinline__ static Fall of(const Alibi& a, int batch, int head, int row, float factor) {
    const Alibi::Spot spot = rows_are_keys ? a.of_key(batch, row) : a.of_row(batch, row);
    return {a.slope(spot, head) * factor, spot.place};
  }
  __device__ __forceinline__ float at(int first, int column) const { return slope * fabsf(float(place - first) - float(column)); }
};

}  // namespace headroom::attention
