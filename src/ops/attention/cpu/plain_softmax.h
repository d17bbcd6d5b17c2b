// plain's softmax on the CPU: one row at a time, by the widest vectors of the machine. Only plain.cpp includes this.
#pragma once
#include <cstdint>

namespace headroom::attention {

struct RowSum {
  float top, sum;  // the maximum, and Σ e^(s − top)
};
// s[0 … n) becomes e^(s − top); n ≥ 1.
RowSum exponentials_of_row(float* s, std::int64_t n);

// s[0 … n) becomes cap · tanh(s / cap).
void cap_row(float* s, std::int64_t n, float cap);
// ds[0 … n) is multiplied with the slope of that at s, the scores before they were capped.
void times_slope_of_cap(const float* s, std::int64_t n, float cap, float* ds);

}  // namespace headroom::attention
