// Workspaces of cuFFT's plans. An H200 with CUDA 13.0 was asked for 3563 plans of plain layout; those whose lengths are products of 2, 3, 5 and 7 are in
// bench/results/h200_cufft_workspaces_2026-11-29.csv. Short lengths of that kind take nothing, whatever the batch.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

namespace headroom::dry {

constexpr bool has_only_small_factors(std::int64_t n) {
  for (const std::int64_t factor : {2, 3, 5, 7})
    while (n > 0 && n % factor == 0) n /= factor;
  return n == 1;
}

// The shortest lengths of that kind that were seen to take some are 1200 and, in double, 640; of a power of two alone 32768 and 8192.
constexpr bool needs_no_workspace(std::span<const std::int64_t> lengths, bool wide) {
  if (lengths.size() == 1 && (lengths[0] & (lengths[0] - 1)) == 0) return lengths[0] > 0 && lengths[0] <= (wide ? 4096 : 16384);
  return std::ranges::all_of(lengths, [&](std::int64_t n) { return n <= (wide ? 512 : 1024) && has_only_small_factors(n); });
}

}  // namespace headroom::dry
