#include "gpu/fastest_way.h"

#include <gtest/gtest.h>

#include <vector>

namespace headroom {
namespace {

constexpr float never = std::numeric_limits<float>::infinity();

// A card: how long each way takes alone, and where its own runs fill 50 ms or more.
struct Card {
  std::vector<float> cool, hot;
  std::vector<int> runs = std::vector<int>(cool.size());  // of each way
  std::size_t last = never_ran;
  float worked = 0;  // ms in a row by the last way

  static constexpr std::size_t never_ran = std::size_t(-1);

  float operator()(std::size_t way, int in_a_row) {
    if (way != last) worked = 0;
    last = way;
    runs[way] += in_a_row;
    const bool is_hot = worked >= 50;
    worked += float(in_a_row) * cool[way];
    return is_hot ? hot[way] : cool[way];
  }
  std::size_t choice(bool in_long_rows = true) {
    return fastest_way(
        cool.size(), [this](std::size_t way, int in_a_row) { return (*this)(way, in_a_row); }, in_long_rows);
  }
};

TEST(FastestWay, IsTheOneThatTakesLeastInALongRow) {
  EXPECT_EQ((Card{.cool = {5.0f, 5.1f, 5.05f}, .hot = {5.8f, 5.7f, 5.5f}}.choice()), 2u);
  EXPECT_EQ((Card{.cool = {0.05f, 0.051f, 0.0505f}, .hot = {0.058f, 0.057f, 0.055f}}.choice()), 2u);
  EXPECT_EQ((Card{.cool = {5.0f, 5.1f}, .hot = {5.4f, 5.38f}}.choice()), 0u) << "a later one by no more than the noise";
}

TEST(FastestWay, IsJudgedAloneWhereNoLongRowIsAskedFor) {
  Card card{.cool = {0.005f, 0.004f, 0.00395f}, .hot = {0.001f, 0.005f, 0.006f}};
  EXPECT_EQ(card.choice(false), 1u) << "the third is faster by no more than the noise";
  EXPECT_EQ(card.runs, (std::vector<int>{5, 5, 5}));
}

TEST(FastestWay, TriesNoSlowWayInALongRow) {
  Card card{.cool = {9.0f, 5.0f, 5.6f, 5.2f}, .hot = {1.0f, 6.0f, 1.0f, 6.0f}};
  EXPECT_EQ(card.choice(), 1u);
  EXPECT_EQ(card.runs, (std::vector<int>{5, 5 + 2 * 12, 5, 5 + 2 * 12})) << "12 runs of 5 ms are 60";
}

TEST(FastestWay, TriesSixInALongRow) {
  Card card{.cool = {1.07f, 1.06f, 1.05f, 1.04f, 1.03f, 1.02f, 1.01f, 1.0f}, .hot = {0.5f, 0.5f, 2.0f, 2.0f, 1.0f, 2.0f, 2.0f, 2.0f}};
  EXPECT_EQ(card.choice(), 4u);
  EXPECT_EQ(card.runs[0], 5);
  EXPECT_EQ(card.runs[1], 5);
  EXPECT_EQ(card.runs[2], 5 + 2 * 60);
}

TEST(FastestWay, OfOneIsNotTimedLong) {
  Card card{.cool = {5.0f, never}, .hot = {6.0f, never}};
  EXPECT_EQ(card.choice(), 0u);
  EXPECT_EQ(card.runs, (std::vector<int>{5, 1}));
}

TEST(FastestWay, HasTurnsAloneSoThatARisingClockFavoursNone) {
  int calls = 0;
  const auto rising = [&](std::size_t way, int) { return (way == 0 ? 0.009f : 0.0095f) * (1 + 10.0f / float(++calls)); };
  EXPECT_EQ(fastest_way(40, rising, false), 0u);
}

TEST(FastestWay, LeavesOutWhatDoesNotRun) {
  EXPECT_EQ((Card{.cool = {never, 5.0f, never}, .hot = {never, 6.0f, never}}.choice()), 1u);
  EXPECT_EQ((Card{.cool = {never, 0.02f}, .hot = {never, 0.02f}}.choice()), 1u);
  EXPECT_EQ((Card{.cool = {never, never}, .hot = {never, never}}.choice()), 0u) << "the first then says why";
}

TEST(FastestWay, DoesNotTakeTheFirstRunForItsTime) {
  int calls = 0;
  const auto loads_first = [&](std::size_t, int) { return ++calls == 1 ? 90.0f : 0.05f; };
  EXPECT_EQ(fastest_way(1, loads_first, false), 0u);
  EXPECT_EQ(calls, 5);
  calls = 0;
  EXPECT_EQ(fastest_way(
                2, [&](std::size_t way, int) { return ++calls == 1 ? 90.0f
                                                      : way == 0   ? 0.005f
                                                                   : 0.006f; }, false),
            0u);
}

}  // namespace
}  // namespace headroom
