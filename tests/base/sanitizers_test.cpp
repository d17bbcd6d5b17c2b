#include "tests/sanitizers.h"

#include <gtest/gtest.h>

#include <string_view>

namespace headroom {
namespace {

TEST(Sanitizers, AreKnownToTestsOfEveryCompiler) {
  constexpr std::string_view of_this_build = HEADROOM_SANITIZE;
  EXPECT_EQ(address_sanitizer, of_this_build.find("address") != of_this_build.npos);
  EXPECT_EQ(thread_sanitizer, of_this_build.find("thread") != of_this_build.npos);
}

}  // namespace
}  // namespace headroom
