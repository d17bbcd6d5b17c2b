// How Hopper's matrix units add the products of fp8 numbers, as published: 32 products and the sum so far are aligned to the largest of
// their exponents, each is cut below 13 binary places of it, and what they add up to is cut to 13 bits of mantissa. (DeepSeek-V3, arXiv
// 2412.19437, 3.5.2; SageAttention2 and MMA-Sim, arXiv 2511.10909, found the same 1 + 8 + 13 bits.) An
// H200 agrees wherever tests compare: bench/lab/fp8.md.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/convert.h"

namespace headroom::matmul {

constexpr int hopper_depth = 32, hopper_places = 13;

// sum + Σ a·b over `count` ≤ hopper_depth numbers, all of them values of 8-bit formats whose smallest normal numbers have these exponents.
inline float add_as_hopper(float sum, const float* a, const float* b, std::int64_t count, int least_a, int least_b) {
  const auto exponent = [](float x) { return int(bits_of(x) >> 23 & 255) - 127; };
  int top = sum == 0 ? std::numeric_limits<int>::min() : exponent(sum);
  bool special = !std::isfinite(sum), any = sum != 0;
  for (std::int64_t l = 0; l < count; ++l) {
    special = special || !std::isfinite(a[l]) || !std::isfinite(b[l]);
    if (a[l] == 0 || b[l] == 0) continue;
    any = true;
    top = std::max(top, std::max(exponent(a[l]), least_a) + std::max(exponent(b[l]), least_b));
  }
  if (special) {
    for (std::int64_t l = 0; l < count; ++l) sum += a[l] * b[l];
    return sum;
  }
  if (!any) return sum;
  const double places = std::ldexp(1.0, hopper_places - top);
  auto whole = std::int64_t(double(sum) * places);  // conversion cuts towards zero
  for (std::int64_t l = 0; l < count; ++l) whole += std::int64_t(double(a[l]) * double(b[l]) * places);
  auto magnitude = std::uint64_t(whole < 0 ? -whole : whole);
  int below = 0;
  for (; magnitude >> (hopper_places + 1 + below) != 0; ++below) {}
  magnitude = magnitude >> below << below;
  return float((whole < 0 ? -double(magnitude) : double(magnitude)) / places);
}

}  // namespace headroom::matmul
