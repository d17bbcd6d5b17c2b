// What a command says of the time that is left.
#include "cli/progress.h"

#include <gtest/gtest.h>

namespace headroom::cli {
namespace {

TEST(Progress, TheTimeLeftIsInWholeSecondsAndEndsWithTheWork) {
  EXPECT_EQ(left_in_words(10'000, 0.5), ", about 10 s left");
  EXPECT_EQ(left_in_words(10'000, 0.999), ", about 1 s left");
  EXPECT_EQ(left_in_words(10'000, 1), "") << "nothing is left";
  EXPECT_EQ(left_in_words(10'000, 0.005), "") << "nothing is known yet";
}

}  // namespace
}  // namespace headroom::cli
