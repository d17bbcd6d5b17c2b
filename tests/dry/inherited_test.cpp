// What a test inherits of the shell that starts it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <string>

namespace {

TEST(Inherited, NoCardIsHiddenFromADryRun) {
  EXPECT_EQ(std::getenv("CUDA_VISIBLE_DEVICES"), nullptr);
  if (std::getenv("HEADROOM_INHERITED")) return;  // it is the one below
  char self[PATH_MAX + 1] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, PATH_MAX), 0);
  const std::string again =
      std::string("CUDA_VISIBLE_DEVICES= HEADROOM_INHERITED=1 '") + self + "' --gtest_brief=1 --gtest_filter=Inherited.*";
  EXPECT_EQ(std::system(again.c_str()), 0);
}

}  // namespace
