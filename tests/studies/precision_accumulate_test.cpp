#include "studies/precision/accumulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/formats.h"
#include "report/render.h"

namespace headroom::studies::precision {
namespace {

// The nine published results, typed here digit by digit.
const std::map<std::string, double> nine{
    {"fp32 += fp32(0.01) x1000", 10.000133514404297},
    {"fp16 += fp16(0.01) x1000", 9.953125},
    {"fp32 += fp16(0.01) x1000", 10.00213623046875},
    {"fp32 += float(fp16(0.01)) x1000", 10.00213623046875},
    {"bf16 += bf16(0.01) x1000", 4.0},
    {"fp32 += bf16(0.01) x1000", 10.009765625},
    {"fp32 += fp32(0.001) x10000", 10.000411033630371},
    {"fp16 += fp16(0.001) x10000", 4.0},
    {"bf16 += bf16(0.001) x10000", 0.5},
};

Accumulation named(const std::vector<Accumulation>& all, const std::string& experiment) {
  for (const auto& a : all)
    if (a.experiment == experiment) return a;
  throw Error(Code::bad_argument, "no experiment called " + experiment);
}

TEST(Accumulate, TheNineResultsBitForBit) {
  const auto all = accumulate({});
  for (const auto& [experiment, result] : nine)
    EXPECT_EQ(std::bit_cast<std::uint64_t>(named(all, experiment).result), std::bit_cast<std::uint64_t>(result)) << experiment;
}

TEST(Accumulate, TheNineAreTheSeedsAndComeOutOfTheJson) {
  std::ifstream file(HEADROOM_SOURCE_DIR "/tests/data/accumulation.csv");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const auto json = nlohmann::json::parse(render(accumulate_record({}), Format::json));
  int rows = 0;
  for (; std::getline(file, line); ++rows) {
    const auto comma = line.rfind(',');
    const std::string experiment = line.substr(0, comma);
    const double result = std::stod(line.substr(comma + 1));
    ASSERT_TRUE(nine.contains(experiment)) << experiment;
    EXPECT_EQ(nine.at(experiment), result) << experiment;
    const auto row = std::find_if(json["rows"].begin(), json["rows"].end(), [&](const auto& r) { return r["experiment"] == experiment; });
    ASSERT_NE(row, json["rows"].end()) << experiment;
    EXPECT_EQ((*row)["result"].template get<double>(), result) << experiment;
  }
  EXPECT_EQ(rows, 9);
}

TEST(Accumulate, Fp32IsThePlainLoop) {
  float sum = 0;
  for (int i = 0; i < 12345; ++i) sum += 0.3f;
  AccumulateSettings s;
  s.sums = {{0.3, 12345}};
  EXPECT_EQ(named(accumulate(s), "fp32 += fp32(0.3) x12345").result, sum);
}

TEST(Accumulate, AStallIsFoundWhereItHappensAndStaysThere) {
  const auto all = accumulate({});
  const auto bf16 = named(all, "bf16 += bf16(0.01) x1000");
  ASSERT_TRUE(bf16.stall);
  EXPECT_EQ(bf16.stall->at, 4);
  EXPECT_NE(bf16.why.find("half an ulp of 4 is 0.015625, more than the addend 0.010009765625"), std::string::npos) << bf16.why;
  AccumulateSettings until{.sums = {{0.01, bf16.stall->step - 1}}};  // one addition less: every one still changed the sum
  const auto before = named(accumulate(until), fmt::format("bf16 += bf16(0.01) x{}", bf16.stall->step - 1));
  EXPECT_FALSE(before.stall);
  EXPECT_EQ(before.result, 4);
  EXPECT_EQ(before.would_stall_at, 4);
  EXPECT_FALSE(named(all, "fp16 += fp16(0.01) x1000").stall);
  EXPECT_EQ(named(all, "fp16 += fp16(0.01) x1000").would_stall_at, 32);
}

TEST(Accumulate, ATieGoesBackToTheEvenSum) {
  const auto a = named(accumulate({.sums = {{1, 1000}}}), "bf16 += bf16(1) x1000");
  ASSERT_TRUE(a.stall);
  EXPECT_EQ(a.stall->at, 256);
  EXPECT_EQ(a.stall->step, 257);
  EXPECT_NE(a.why.find("tie"), std::string::npos) << a.why;
}

TEST(Accumulate, EveryPredictedStallHappensThere) {  // the theorem in the source, against running into it
  for (const std::string dtype : {"bf16", "fp16", "e4m3", "e5m2"})
    for (double value : {0.001, 0.0123, 0.01, 0.3, 1.0, 1.5, 1.7, 2.9, 3.25, -0.7}) {
      AccumulateSettings s{.sums = {{value, 1}}, .dtypes = {dtype}, .methods = {"sequential"}};
      const auto predicted = accumulate(s).front().would_stall_at;
      s.sums = {{value, 100000}};
      const auto ran = accumulate(s).front();
      if (!predicted) {
        EXPECT_FALSE(std::isfinite(ran.result)) << ran.experiment;
        continue;
      }
      ASSERT_TRUE(ran.stall) << ran.experiment;
      EXPECT_EQ(ran.stall->at, *predicted) << ran.experiment;
      EXPECT_EQ(ran.result, *predicted) << ran.experiment;
    }
}

TEST(Accumulate, CompensatedAndTreeSumsAreCloseWhereTheLoopStalls) {
  for (const std::string dtype : {"bf16", "fp16"}) {
    const auto all = accumulate({.sums = {{0.01, 1000}}, .dtypes = {dtype}});
    const double addend_error = std::fabs(all.front().addend - 0.01) / 0.01;
    const double ulp = with_format(dtype, [&]<class T>() { return format_of<T>(dtype).ulp_at_1(); });
    const std::map<std::string, double> allowed{{"sequential", 1},
                                                {"kahan", addend_error + ulp},
                                                {"pairwise", addend_error + 10 * ulp / 2},
                                                {"stochastic", 0.1},
                                                {"blocked", 0.05}};
    for (const auto& a : all) EXPECT_LE(a.error(), allowed.at(a.method)) << a.experiment;
  }
}

TEST(Accumulate, StochasticRoundingIsRightOnAverageAndFollowsItsSeed) {
  double mean = 0;
  AccumulateSettings s{.sums = {{0.01, 1000}}, .dtypes = {"bf16"}, .methods = {"stochastic"}};
  constexpr int seeds = 200;
  for (s.seed = 0; s.seed < seeds; ++s.seed) mean += accumulate(s).front().result / seeds;
  // One sum's rounding errors have a standard deviation below ½·ulp(8)·√1000 / √3 ≈ 0.57; the mean of 200 is within 4 of its own.
  EXPECT_NEAR(mean, 1000 * accumulate(s).front().addend, 4 * 0.57 / std::sqrt(seeds));
  s.seed = 5;
  const double once = accumulate(s).front().result;
  EXPECT_EQ(accumulate(s).front().result, once);
  s.seed = 6;
  EXPECT_NE(accumulate(s).front().result, once);
}

TEST(Accumulate, StochasticFp32IsStochastic) {
  AccumulateSettings s{.sums = {{0.01, 1000}}, .dtypes = {"fp32"}, .methods = {"sequential", "stochastic"}};
  const auto all = accumulate(s);
  const double exact = 1000 * all[0].addend;
  // A rounding error has a standard deviation of at most half an ulp of 8: six of the sum's are far below what the loop loses.
  const double six = 6 * 0x1p-20 / 2 * std::sqrt(1000.0);
  EXPECT_GT(std::fabs(all[0].result - exact), six);
  EXPECT_LT(std::fabs(all[1].result - exact), six);
  std::set<double> results;
  for (s.seed = 0; s.seed < 20; ++s.seed) results.insert(accumulate(s)[1].result);
  EXPECT_GT(results.size(), 5u);
  s.sums = {{3e38, 3}};
  EXPECT_TRUE(std::isinf(accumulate(s)[1].result));
}

TEST(Accumulate, WhereASumStallsDoesNotDependOnHowLongItGoesOn) {
  int stalls = 0;
  for (const std::string method : {"sequential", "kahan", "blocked"})
    for (const std::string dtype : {"bf16", "fp16", "e4m3", "e5m2"})
      for (double value : {0.01, 0.3, 1.0, 1.7, -2.9}) {
        AccumulateSettings s{.sums = {{value, 100000}}, .dtypes = {dtype}, .methods = {method}};
        const auto longest = accumulate(s).front();
        if (!longest.stall) continue;
        ++stalls;
        const auto step = longest.stall->step;
        for (auto count : {step, step + 1, step + 2, step + 7, step + 31, step + 32, step + 100, 2 * step + 5, 30000 + step}) {
          s.sums = {{value, count}};
          const auto a = accumulate(s).front();
          ASSERT_TRUE(a.stall) << a.experiment;
          EXPECT_EQ(a.stall->step, step) << a.experiment;
          EXPECT_EQ(a.stall->at, longest.stall->at) << a.experiment;
          EXPECT_EQ(a.result, longest.result) << a.experiment;
        }
        s.sums = {{value, step - 1}};  // the last addition that moved it
        EXPECT_FALSE(accumulate(s).front().stall) << longest.experiment;
        EXPECT_EQ(accumulate(s).front().result, longest.result) << longest.experiment;
        s.sums = {{value, step - 2}};
        EXPECT_NE(accumulate(s).front().result, longest.result) << longest.experiment;
      }
  EXPECT_GT(stalls, 30);
}

TEST(Accumulate, ABlockThatIsTooLongStallsInside) {
  AccumulateSettings s{.sums = {{0.01, 900}}, .dtypes = {"bf16"}, .methods = {"blocked"}, .block = 1000};
  auto a = accumulate(s).front();  // the part pauses, but the next block will move the sum
  EXPECT_FALSE(a.stall);
  ASSERT_TRUE(a.block_stall);
  EXPECT_EQ(a.block_stall->step, 351);
  EXPECT_NE(a.why.find("its own sum stalls at 4 from its addend 351 on"), std::string::npos) << a.why;
  s.sums = {{0.01, 1900}};
  EXPECT_EQ(accumulate(s).front().result, 8);
  s.block = 32;
  a = accumulate(s).front();
  EXPECT_FALSE(a.block_stall);
  EXPECT_EQ(a.why.find("too long"), std::string::npos) << a.why;
}

TEST(Accumulate, TheChartSaysWhichErrorsStandBesideItsLines) {
  const AccumulateSettings s{.sums = {{0.01, 1000}}, .dtypes = {"bf16"}, .methods = {"sequential"}};
  const auto a = accumulate(s).front();
  const std::string page = render(accumulate_record(s), Format::text);
  EXPECT_NE(page.find("beside it its first and last error"), std::string::npos) << page;
  EXPECT_NE(page.find(fmt::format("first {:.1e}, last {:.1e}", a.path.front().second, a.path.back().second)), std::string::npos) << page;
}

TEST(Accumulate, BlocksOfOneAreTheLoopItself) {
  AccumulateSettings s{.sums = {{0.01, 777}}, .dtypes = {"bf16", "fp16"}, .methods = {"blocked", "sequential"}, .block = 1};
  const auto all = accumulate(s);
  EXPECT_EQ(all[0].result, all[2].result);
  EXPECT_EQ(all[1].result, all[3].result);
}

TEST(Accumulate, WhatCannotBeAddedSaysWhy) {
  const auto tiny = accumulate({.sums = {{1e-9, 10}}, .dtypes = {"fp16"}, .methods = {"sequential"}}).front();
  EXPECT_EQ(tiny.result, 0);
  EXPECT_NE(tiny.why.find("rounds to 0 in fp16"), std::string::npos);
  const auto large = accumulate({.sums = {{60000, 10}}, .dtypes = {"fp16"}, .methods = {"sequential"}}).front();
  EXPECT_TRUE(std::isinf(large.result));
  EXPECT_NE(large.why.find("passes the largest fp16, 65504"), std::string::npos) << large.why;
  for (const auto& a : accumulate({.sums = {{60000, 10}}, .dtypes = {"fp16"}}))
    EXPECT_FALSE(a.stall) << a.experiment << " overflows, it does not stall";
  const auto beyond = accumulate({.sums = {{1e6, 10}}, .dtypes = {"e4m3"}, .methods = {"sequential"}}).front();
  EXPECT_TRUE(std::isnan(beyond.result));
  EXPECT_NE(beyond.why.find("beyond the largest e4m3"), std::string::npos) << beyond.why;
  const auto half = accumulate({.sums = {{1e6, 10}}, .dtypes = {"fp16"}, .methods = {"sequential"}}).front();
  EXPECT_NE(half.why.find("the addend 1000000 is beyond the largest fp16, 65504"), std::string::npos) << half.why;
  for (auto format : {Format::text, Format::markdown, Format::csv, Format::json})
    EXPECT_FALSE(render(accumulate_record({.sums = {{1e6, 10}}}), format).empty());
  EXPECT_THROW(accumulate({.sums = {{1e39, 10}}}), Error);
  EXPECT_THROW(accumulate({.sums = {{1, 0}}}), Error);
}

}  // namespace
}  // namespace headroom::studies::precision
