#include "instruments/bench/bench.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headroom::bench {
namespace {

// A clock that is told how long each call took.
Timer scripted(std::vector<double> ms, int& calls) {
  return [ms = std::move(ms), &calls](const std::function<void()>& call) {
    call();
    return ms[std::size_t(calls++) % ms.size()];
  };
}

TEST(Stats, AreWhatTheirNamesSay) {
  const std::vector<double> s = {4, 1, 3, 2};
  const Stats r = stats_of(s);
  EXPECT_EQ(r.count, 4);
  EXPECT_DOUBLE_EQ(r.mean, 2.5);
  EXPECT_DOUBLE_EQ(r.median, 2.5);
  EXPECT_DOUBLE_EQ(r.min, 1);
  EXPECT_DOUBLE_EQ(r.std, std::sqrt(5.0 / 3));
  EXPECT_DOUBLE_EQ(r.drift, 0.5);
  EXPECT_EQ(stats_of({}).count, 0);
  EXPECT_DOUBLE_EQ(stats_of(std::vector<double>{7}).std, 0);
}

TEST(Measure, WarmsUpApartAndCountsTheSteps) {
  int timed = 0, called = 0;
  const auto m = measure([&] { ++called; }, {.warmup = 3, .steps = 7}, scripted({90, 90, 90, 1, 1, 1, 1, 1, 1, 1}, timed));
  EXPECT_EQ(m.ms.count, 7);
  EXPECT_EQ(m.warmup, 3);
  EXPECT_EQ(m.ms.mean, 1) << "what warms up does not count";
  EXPECT_EQ(timed, 10) << "a timer may have something to prepare";
  EXPECT_EQ(called, 10);
  EXPECT_TRUE(m.complete);
}

TEST(Measure, StopsWhenTheMeanIsKnown) {
  int calm = 0, wild = 0;
  EXPECT_EQ(measure([] {}, {.steps = 1000, .until = 0.005}, scripted({1}, calm)).ms.count, Protocol::least_steps_until);
  const auto m = measure([] {}, {.steps = 1000, .until = 0.005}, scripted({1, 1.1}, wild));
  EXPECT_TRUE(m.reached);
  EXPECT_FALSE(measure([] {}, {.steps = 20, .until = 0.0005}, scripted({1, 1.1}, wild)).reached) << "steps ended it";
  EXPECT_GT(m.ms.count, 50);
  EXPECT_LE(m.ms.standard_error(), 0.005 * m.ms.mean);
}

TEST(Measure, KeepsWhatItHasWhenStopped) {
  int timed = 0;
  const auto m = measure([] {}, {.warmup = 0, .steps = 100}, scripted({1}, timed), [&] { return timed >= 4; });
  EXPECT_EQ(m.ms.count, 4);
  EXPECT_FALSE(m.complete);
}

TEST(Axes, EveryCombinationOnceTheLastFastest) {
  std::vector<std::vector<std::size_t>> seen;
  const std::size_t sizes[] = {2, 1, 3};
  for_each_point(sizes, [&](auto at) { seen.emplace_back(at.begin(), at.end()); });
  ASSERT_EQ(seen.size(), 6u);
  EXPECT_EQ(seen[1], (std::vector<std::size_t>{0, 0, 1}));
  EXPECT_EQ(seen[5], (std::vector<std::size_t>{1, 0, 2}));
  const std::size_t nothing[] = {2, 0};
  for_each_point(nothing, [](auto) { FAIL(); });
}

}  // namespace
}  // namespace headroom::bench
