#include "studies/precision/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "report/render.h"
#include "studies/precision/formats.h"

namespace headroom::studies::precision {
namespace {

NormCase of(const char* norm, const char* dtype, const char* statistics, std::int64_t width, double eps = 1e-5) {
  return {norm, dtype, statistics, width, eps};
}

TEST(Norm, Fp32StatisticsLeaveTheRoundingOfTheOutputOnly) {
  for (auto norm : {"layernorm", "rmsnorm"})
    for (double magnitude : {1e-3, 1.0, 100.0, 10000.0}) {
      EXPECT_LE(norm_error(of(norm, "bf16", "fp32", 4096), magnitude, 4, 1).rms, 0x1p-9) << magnitude;
      EXPECT_LE(norm_error(of(norm, "fp16", "fp32", 4096), magnitude, 4, 1).rms, 0x1p-12) << magnitude;
      EXPECT_LE(norm_error(of(norm, "fp32", "fp32", 4096), magnitude, 4, 1).rms, 1e-5) << magnitude;
    }
}

TEST(Norm, SquaresOverflowFp16WhereWidthTimesSquarePassesItsLargest) {
  for (std::int64_t width : {64, 1024, 4096})
    for (auto norm : {"layernorm", "rmsnorm"}) {
      const double edge = std::sqrt(65504.0 / double(width));
      const NormError above = norm_error(of(norm, "fp16", "fp16", width), 1.5 * edge, 2, 3);
      EXPECT_TRUE(std::isinf(above.max) || above.rms > 0.5) << width;
      EXPECT_EQ(above.trouble, NormTrouble::squares_overflow) << width;
      EXPECT_NE(norm_error(of(norm, "fp16", "fp16", width), edge / 1.5, 2, 3).trouble, NormTrouble::squares_overflow) << width;
      EXPECT_EQ(norm_error(of(norm, "fp16", "fp32", width), 1.5 * edge, 2, 3).trouble, NormTrouble::none) << width;
    }
  const NormLimits l = norm_limits(of("rmsnorm", "fp16", "fp16", 64), 1, 0);
  ASSERT_TRUE(l.fails_above);
  EXPECT_NEAR(std::log2(*l.fails_above), 5, 1) << "sqrt(65504 / 64) = 32";
  EXPECT_EQ(l.above, NormTrouble::squares_overflow);
}

TEST(Norm, LongSumsStallInBf16) {
  EXPECT_FALSE(norm_error(of("rmsnorm", "bf16", "bf16", 4096), 1, 4, 1).right());
  EXPECT_EQ(norm_error(of("rmsnorm", "bf16", "bf16", 4096), 1, 4, 1).trouble, NormTrouble::sums_stall);
  const NormLimits l = norm_limits(of("rmsnorm", "bf16", "bf16", 4096), 1, 0);
  ASSERT_TRUE(l.right_to && l.fails_above) << "while epsilon outweighs the squares the output is right";
  EXPECT_LT(*l.right_to, std::sqrt(1e-5));
  EXPECT_EQ(*l.fails_above, 2 * *l.right_to);
  EXPECT_EQ(l.above, NormTrouble::sums_stall);
}

TEST(Norm, EpsilonThatRoundsToZeroDividesByZero) {
  const NormError e = norm_error(of("rmsnorm", "fp16", "fp16", 64, 1e-8), 1e-5, 2, 1);
  EXPECT_EQ(e.trouble, NormTrouble::epsilon_is_zero);
  EXPECT_FALSE(e.right());
  EXPECT_EQ(norm_error(of("rmsnorm", "fp16", "fp32", 64, 1e-8), 1e-5, 2, 1).trouble, NormTrouble::none);
}

TEST(Norm, EpsilonIsLostFromTheMagnitudeThatIsPredicted) {
  for (auto dtype : {"fp32", "bf16", "fp16"}) {
    const NormLimits l = norm_limits(of("rmsnorm", dtype, dtype, 64), 1, 0);
    ASSERT_TRUE(l.epsilon_lost_from) << dtype;
    EXPECT_TRUE(norm_error(of("rmsnorm", dtype, dtype, 64), 2 * *l.epsilon_lost_from, 2, 0).epsilon_lost) << dtype;
    EXPECT_FALSE(norm_error(of("rmsnorm", dtype, dtype, 64), *l.epsilon_lost_from / 4, 2, 0).epsilon_lost) << dtype;
  }
}

TEST(Norm, RowsAndLimitsNeverDisagree) {
  NormSettings s;
  s.widths = {16, 64, 1024};
  s.magnitudes.clear();
  for (int k = -24; k <= 16; ++k) s.magnitudes.push_back(std::ldexp(1.0, k));
  const auto json = nlohmann::json::parse(render(norm_record(s), Format::json));
  int held = 0, failing = 0;
  for (const auto& limit : json["limits"])
    for (const auto& row : json["rows"]) {
      bool same = true;
      for (auto key : {"norm", "dtype", "statistics", "width", "eps"}) same &= row[key] == limit[key];
      if (!same) continue;
      const double m = row["magnitude"];
      const bool right = row["status"] == "right";
      if (!limit["right_from"].is_null() && m >= limit["right_from"] && m <= limit["right_to"]) {
        EXPECT_TRUE(right) << row << limit;
        ++held;
      }
      if (!limit["fails_from"].is_null() && m == limit["fails_from"]) {
        EXPECT_FALSE(right) << row << limit;
        EXPECT_EQ(row["why"], limit["why"]) << row << limit;
        ++failing;
      }
      const std::string why_below = limit["why_below"];
      if (!why_below.empty() && !limit["right_from"].is_null() && 2 * m == limit["right_from"]) { EXPECT_FALSE(right) << row << limit; }
    }
  EXPECT_GT(held, 500);
  EXPECT_GT(failing, 5);
}

TEST(Norm, EveryTableReadsInEveryFormat) {
  NormSettings s;
  s.widths = {16};
  const auto json = nlohmann::json::parse(render(norm_record(s), Format::json));
  EXPECT_EQ(json["rows"].size(), 2u * 5 * 4);
  EXPECT_EQ(json["limits"].size(), 2u * 5);
  EXPECT_NE(render(norm_record(s), Format::markdown).find("| layernorm"), std::string::npos);
  s.magnitudes = {-1};
  EXPECT_THROW(norm_record(s), std::exception);
}

TEST(FormatsStudy, FewerBitsLoseMoreAndScalesHelp) {
  const FormatsSettings s;
  EXPECT_EQ(format_error("fp32", s), 0);
  double before = 0;
  for (auto f : {"tf32", "bf16", "e4m3", "e5m2", "e2m1"}) {
    EXPECT_GT(format_error(f, s), before) << f;
    before = format_error(f, s);
  }
  EXPECT_LT(format_error("NVFP4", s), format_error("MXFP4", s));
  EXPECT_LT(format_error("MXFP4", s), format_error("e2m1", s));
  // A value is uniform within its place, give or take: the RMS of an error is near ulp / √12 of its binade's middle.
  EXPECT_NEAR(format_error("fp16", s) / (0x1p-11 / std::sqrt(3.0)), 0.72, 0.1);
  EXPECT_NEAR(format_error("bf16", s) / (0x1p-8 / std::sqrt(3.0)), 0.72, 0.1);
}

TEST(FormatsStudy, TheTablesComeOutInJson) {
  const auto json = nlohmann::json::parse(render(formats_record({}), Format::json));
  ASSERT_EQ(json["rows"].size(), 7u);
  ASSERT_EQ(json["blocks"].size(), 4u);
  EXPECT_EQ(json["rows"][3]["max"], 65504.0);
  EXPECT_EQ(json["rows"][6]["bytes_per_value"], 0.5);
  EXPECT_EQ(json["blocks"][0]["bytes_per_value"], 1.03125);
  EXPECT_EQ(json["blocks"][3]["bytes_per_value"], 0.5625);
  EXPECT_EQ(json["blocks"][3]["max"], 2688.0);
}

}  // namespace
}  // namespace headroom::studies::precision
