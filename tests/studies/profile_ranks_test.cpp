#include <gtest/gtest.h>

#include "studies/profile/ranks.h"

namespace headroom::studies {
namespace profile_ranks_tests {

// Two steps of work, a collective beside it and one alone, and what nothing covers: next to a collective a rank waits for another one's word,
// elsewhere no rank is waited for.
TEST(ProfileRanks, WhatNothingCoversNextToACollectiveIsExposed) {
  using profile::Slice, profile::SliceKind, profile::Span;
  profile::Timeline t;
  t.marks.push_back({{Region::Kind::op, "work", Phase::forward, {}, {.flops = 1}}});
  t.marks.push_back({{Region::Kind::op, "gather", Phase::forward, {}, {.link_bytes = 1e6}}});
  constexpr std::int64_t ms = 1'000'000;
  for (int step = 0; step < 2; ++step) {
    const std::int64_t begin = 100 * step * ms;
    const auto slice = [&](int mark, int from, int to, int stream) {
      t.slices.push_back({"", SliceKind::kernel, mark, step, begin + from * ms, begin + to * ms, stream});
    };
    slice(0, 0, 10, 1);
    slice(1, 5, 12, 2);                           // 2 ms of it alone
    slice(0, 15, 20, 1);                          // 3 ms after it: it waited
    slice(0, 24, 30, 1);                          // 4 ms between work and work: it did not
    slice(1, 31, 33, 2);                          // 1 ms before it, 2 ms of it
    t.steps.push_back({begin, begin + 40 * ms});  // 7 ms after it, to the end
  }
  const RankRow row = rank_row(t, 1);
  EXPECT_EQ(row.rank, 1);
  EXPECT_DOUBLE_EQ(row.step_ms, 40);
  EXPECT_DOUBLE_EQ(row.work_ms, 21);
  EXPECT_DOUBLE_EQ(row.collectives_ms, 9);
  EXPECT_DOUBLE_EQ(row.exposed_ms, 2 + 3 + 1 + 2 + 7);
  EXPECT_DOUBLE_EQ(row.link_bytes, 2e6 / 2);
}

}  // namespace profile_ranks_tests
}  // namespace headroom::studies
