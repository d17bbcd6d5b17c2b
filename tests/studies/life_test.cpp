// A study's life in the store: what is kept survives, and a run is finished only when its answer was shown.
#include "studies/life.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace headroom::studies {
namespace {

class StudyLife : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(host_.store); }
  void TearDown() override { std::filesystem::remove(host_.store); }
  Life life(bool resume, const RowObject& settings = {{"a", 1}}) {
    host_.resume = resume;
    return {host_, "attention", settings, "a machine"};
  }
  Host host_{.store = (std::filesystem::temp_directory_path() / ("headroom_life_" + std::to_string(getpid()) + ".db")).string()};
};

TEST_F(StudyLife, GoesOnUntilItIsFinished) {
  life(false).keep("k", {{"x", 1}});
  {
    Life again = life(true);
    EXPECT_TRUE(again.goes_on());
    ASSERT_NE(again.known("k"), nullptr) << "all its rows are there, its answer was never shown";
    EXPECT_EQ((*again.known("k"))["x"], 1);
    EXPECT_EQ(again.known("other"), nullptr);
    again.finish();
  }
  std::string said;
  host_.say = [&](const std::string& line) { said = line; };
  EXPECT_FALSE(life(true).goes_on());
  EXPECT_NE(said.find("starting afresh"), std::string::npos) << said;
}

TEST_F(StudyLife, ARunOfOtherSettingsIsNotGoneOnWith) {
  life(false).keep("k", {{"x", 1}});
  EXPECT_FALSE(life(true, {{"a", 2}}).goes_on());
}

TEST_F(StudyLife, WithoutResumeARunIsANewOne) {
  life(false).keep("k", {{"x", 1}});
  const Life second = life(false);
  EXPECT_FALSE(second.goes_on());
  EXPECT_EQ(second.known("k"), nullptr);
  EXPECT_EQ(second.name().substr(0, 9), "run 2 in ");
}

}  // namespace
}  // namespace headroom::studies
