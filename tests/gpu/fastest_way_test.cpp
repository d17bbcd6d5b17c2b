#include "gpu/fastest_way.h"

#include <gtest/gtest.h>

#include <vector>

namespace headroom {
namespace {

constexpr float never = std::numeric_limits<float>::infinity();

// A card: how long each way takes alone, and where runs follow each other for `heats_ms` or longer.
struct Card {
  std::vector<float> cool, hot;
  float heats_ms = 10;
  std::vector<int> runs = std::vector<int>(cool.size());  // of each way

  float operator()(std::size_t way, int in_a_row) {
    runs[way] += in_a_row;
    return float(in_a_row) * cool[way] >= heats_ms ? hot[way] : cool[way];
  }
  std::size_t choice() {
    return fastest_way(cool.size(), [this](std::size_t way, int in_a_row) { return (*this)(way, in_a_row); });
  }
};

TEST(FastestWay, IsTheOneThatTakesLeastOnABusyCard) {
  EXPECT_EQ((Card{.cool = {5.0f, 5.1f, 5.05f}, .hot = {5.8f, 5.7f, 5.5f}}.choice()), 2u);
  EXPECT_EQ((Card{.cool = {5.0f, 5.1f}, .hot = {5.4f, 5.37f}}.choice()), 0u) << "a later one by no more than the noise";
}

TEST(FastestWay, IsJudgedAloneWhereItIsShort) {
  Card card{.cool = {0.05f, 0.04f, 0.0395f}, .hot = {0.01f, 0.05f, 0.06f}, .heats_ms = 1};
  EXPECT_EQ(card.choice(), 1u) << "the third is faster by no more than the noise";
  EXPECT_EQ(card.runs, (std::vector<int>{5, 5, 5}));
}

TEST(FastestWay, TriesNoSlowWayOnABusyCard) {
  Card card{.cool = {9.0f, 5.0f, 5.6f}, .hot = {1.0f, 6.0f, 1.0f}};
  EXPECT_EQ(card.choice(), 1u);
  EXPECT_EQ(card.runs, (std::vector<int>{5, 5 + 3 * 4, 5})) << "4 runs of 5 ms keep a card busy for 20";
}

TEST(FastestWay, LeavesOutWhatDoesNotRun) {
  EXPECT_EQ((Card{.cool = {never, 5.0f, never}, .hot = {never, 6.0f, never}}.choice()), 1u);
  EXPECT_EQ((Card{.cool = {never, 0.02f}, .hot = {never, 0.02f}}.choice()), 1u);
  EXPECT_EQ((Card{.cool = {never, never}, .hot = {never, never}}.choice()), 0u) << "the first then says why";
}

TEST(FastestWay, DoesNotTakeTheFirstRunForItsTime) {
  int calls = 0;
  const auto loads_first = [&](std::size_t, int) { return ++calls == 1 ? 90.0f : 0.05f; };
  EXPECT_EQ(fastest_way(1, loads_first), 0u);
  EXPECT_EQ(calls, 5);
  calls = 0;
  EXPECT_EQ(fastest_way(2, [&](std::size_t way, int) { return ++calls == 1 ? 90.0f : way == 0 ? 0.05f : 0.06f; }), 0u);
}

}  // namespace
}  // namespace headroom
