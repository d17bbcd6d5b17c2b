// The plans of cuFFT that take nothing, beside what a card said.
#include "dry/transform_workspace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace headroom::dry;

TEST(DryTransformWorkspace, PlansThatTakeNothingTookNothingOnAnH200) {
  std::ifstream in(HEADROOM_SOURCE_DIR "/bench/results/h200_cufft_workspaces_2026-11-29.csv");
  std::string line, word;
  std::getline(in, line);
  int plans = 0, none = 0, some = 0;
  while (std::getline(in, line)) {
    std::vector<std::string> words;  // kind, type, lengths, batch, bytes
    for (std::istringstream cells(line); std::getline(cells, word, ',');) words.push_back(word);
    ASSERT_EQ(words.size(), 5u);
    std::vector<std::int64_t> lengths;
    for (std::istringstream parts(words[2]); std::getline(parts, word, 'x');) lengths.push_back(std::stoll(word));
    ++plans;
    some += words[4] != "0";
    if (!needs_no_workspace(lengths, words[1] == "f64")) continue;
    ++none;
    EXPECT_EQ(words[4], "0") << line;
  }
  EXPECT_EQ(plans, 2460);
  EXPECT_EQ(some, 275);
  EXPECT_EQ(none, 1970);
}

TEST(DryTransformWorkspace, OthersMayTakeSome) {
  for (const std::int64_t n : {1200, 1009, 65536}) EXPECT_FALSE(needs_no_workspace(std::vector<std::int64_t>{n}, false)) << n;
  EXPECT_FALSE(needs_no_workspace(std::vector<std::int64_t>{640}, true));
  EXPECT_FALSE(needs_no_workspace(std::vector<std::int64_t>{128, 11}, false));
}

}  // namespace
