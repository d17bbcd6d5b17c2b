#include "studies/results/step_ops.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace headroom::studies {
namespace {

RowObject forecast_of(const char* ms) {
  return RowObject::parse(std::string(R"({"rows": [{"model": "small", "ms": 3.5, "time": [
    {"op": "ffn.down", "count": 2, "m": 8, "ms": 1.5}, {"op": "ffn.down", "count": 1, "m": 4, "ms": 0.5},
    {"op": "rope", "count": 2, "ms": )") +
                          ms + R"(}, {"op": "adamw", "count": 1, "ms": 0.25}]}]})");
}
const RowObject profile = RowObject::parse(R"({"phase": "train", "timeline": [
  {"op": "ffn.down", "kernel": "nvjet", "ms": 9, "step": 0},
  {"op": "ffn.down", "kernel": "nvjet", "ms": 1.0, "step": 1}, {"op": "ffn.down", "kernel": "splitKreduce", "ms": 0.25, "step": 1},
  {"op": "rope", "kernel": "rope_rotate", "ms": 1.5, "step": 1}, {"op": null, "kernel": "adamw_prepare", "ms": 0.125, "step": 1}]})");

TEST(StepOps, AreJoinedByNameAndTheWorstIsFirst) {
  for (const auto& joined : {joined_ops(forecast_of("1"), profile), joined_ops(profile, forecast_of("1"))}) {
    ASSERT_TRUE(joined);
    EXPECT_DOUBLE_EQ(joined->forecast_ms, 3.25);
    EXPECT_DOUBLE_EQ(joined->ms, 2.875) << "of the last step alone";
    ASSERT_EQ(joined->rows.size(), 4u);
    const OpPairRow &worst = joined->rows[0], &second = joined->rows[1];
    EXPECT_EQ(worst.op, "ffn.down");
    EXPECT_EQ(worst.times, 3);
    EXPECT_EQ(worst.launches, 2);
    EXPECT_DOUBLE_EQ(worst.off_ms, 0.75);
    EXPECT_DOUBLE_EQ(*worst.ratio, 1.6);
    EXPECT_EQ(second.op, "rope");
    EXPECT_DOUBLE_EQ(second.off_ms, -0.5);
    EXPECT_EQ(joined->rows[2].op, "adamw") << "forecast, and not seen";
    EXPECT_FALSE(joined->rows[2].launches);
    EXPECT_FALSE(joined->rows[2].ratio);
    EXPECT_EQ(joined->rows[3].op, "(no op of ours)");
    EXPECT_EQ(ops_record(*joined).title, "Ops of a step: 3.25 ms forecast, 2.875 ms measured.");
  }
}

TEST(StepOps, WhatRunsBesideTheStepHasNoTimeInTheForecast) {
  const auto joined = joined_ops(forecast_of("null"), profile);
  ASSERT_TRUE(joined);
  EXPECT_DOUBLE_EQ(joined->forecast_ms, 2.25);
  const auto rope = std::find_if(joined->rows.begin(), joined->rows.end(), [](const OpPairRow& r) { return r.op == "rope"; });
  ASSERT_NE(rope, joined->rows.end());
  EXPECT_EQ(rope->forecast_ms, 0);
  EXPECT_FALSE(rope->ratio);
}

TEST(StepOps, OtherFilesAreNotTaken) {
  EXPECT_FALSE(joined_ops(profile, profile));
  EXPECT_FALSE(joined_ops(forecast_of("1"), forecast_of("1")));
  EXPECT_FALSE(joined_ops(RowObject(), profile));
  EXPECT_FALSE(joined_ops(forecast_of("1"), RowObject::parse(R"({"timeline": [{"kernel": "gemm", "ms": 1}]})")))
      << "of a program, not of a step of ours";
}

TEST(StepOps, AForecastWithoutTimesOrOfSeveralStepsSaysSo) {
  RowObject without = forecast_of("1");
  for (RowObject& op : without["rows"][0]["time"]) op["ms"] = nullptr;
  EXPECT_THROW(joined_ops(without, profile), Error);
  RowObject two = forecast_of("1");
  two["rows"].push_back(two["rows"][0]);
  EXPECT_THROW(joined_ops(two, profile), Error);
  RowObject forward = forecast_of("1");
  forward["rows"][0]["phase"] = "forward";
  EXPECT_THROW(joined_ops(forward, profile), Error) << "the profile is of a training step";
}

}  // namespace
}  // namespace headroom::studies
