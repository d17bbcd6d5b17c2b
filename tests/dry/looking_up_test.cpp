// Times of kernels that look up a place for each element, or add at it, beside an H200's, row by row of the table in bench/results.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dry/work_seconds.h"
#include "tests/dry/recorded.h"

namespace {

using namespace headroom::dry;

// How many numbers share a place decides up to four times as much, and no launch tells it: of atomic additions each row is within a factor of 2.3.
TEST(LookingUp, TimesAreAnH200s) {
  int all = 0, near = 0;
  for (const auto& [line, cells] : recorded("h200_looking_up_2026-11-30.csv")) {
    ASSERT_EQ(cells.size(), 8u) << line;
    Launch l{};
    for (std::size_t d = 0; d < 3; ++d) l.grid[d] = std::uint32_t(std::stoul(cells[2 + d]));
    l.block[0] = std::uint32_t(std::stoul(cells[5]));
    l.block[1] = l.block[2] = 1;
    l.reached_bytes = std::stoull(cells[6]);
    const double ratio = work_of(l, cells[7], rates_of_h200()).s * 1e6 / std::stod(cells[1]);
    EXPECT_GT(ratio, 1 / 2.3) << line;
    EXPECT_LT(ratio, 2.3) << line;
    near += ratio > 0.75 && ratio < 1.33;
    ++all;
  }
  EXPECT_EQ(all, 72);
  EXPECT_GE(near, all * 3 / 4);
}

}  // namespace
