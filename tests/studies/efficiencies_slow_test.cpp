// Efficiencies measured on this CPU: every step becomes a row, and forecasts then have an expected time.
#include "studies/device/efficiencies.h"

#include <gtest/gtest.h>

#include "engine/forecast/forecast.h"
#include "engine/model/models.h"

namespace headroom::studies {
namespace {

// A machine whose ceilings need no measurement; how near its steps come to them does not matter here.
Device cpu() {
  Device d = cpu_device();
  d.ceilings.copy_bytes_per_s = 1e10, d.ceilings.fp32_flops = 5e10, d.ceilings.source = "described";
  return d;
}

TEST(MeasuredEfficiencies, MakeForecastsOfTheStepsThatWereMeasured) {
  Device d = cpu();
  const EfficienciesAsked asked{{{DType::f32}, {DType::bf16}}, {.warmup = 1, .steps = 3, .seconds = 0.01}};
  double share = -1;
  const auto m = measure_efficiencies(
      d, d.ceilings, asked, [] { return false; },
      [&](double done, const std::string& doing) {
        EXPECT_GT(done, share);
        EXPECT_LT(done, 1);
        EXPECT_FALSE(doing.empty());
        share = done;
      });
  EXPECT_GE(m.steps.size(), 20u);
  for (const EfficiencyStep& s : m.steps) {
    EXPECT_GT(s.ms, 0) << s.model;
    EXPECT_GT(s.forecast_ms, 0) << s.model;
    EXPECT_EQ(s.precision, Precision{});
  }
  ASSERT_EQ(m.left_out.size(), 1u);
  EXPECT_EQ(m.left_out[0], "bf16: no ceiling of it was measured");
  ASSERT_EQ(m.by_precision.size(), 1u);
  const Efficiency& e = m.by_precision[0].efficiency;
  EXPECT_GE(e.within, 1.1);
  for (const EfficiencyStep& s : m.steps) {
    EXPECT_LE(s.forecast, e.within) << s.model;
    EXPECT_GE(s.forecast, 1 / e.within) << s.model;
  }
  engine::Recipe r{engine::model_described("small"), 1, 64, {}};
  EXPECT_FALSE(engine::forecast(r, d, 1).expected);
  d.efficiencies = std::make_shared<const Efficiencies>(Efficiencies{{e}, d.ceilings, "measured"});
  const auto expected = engine::forecast(r, d, 1).expected;
  ASSERT_TRUE(expected);
  EXPECT_GT(expected->ms, 0);
  EXPECT_NEAR(expected->high_ms / expected->ms, e.within, 1e-9);
}

TEST(MeasuredEfficiencies, AreNoneWhereItWasStopped) {
  const Device d = cpu();
  int steps = 0;
  const auto m = measure_efficiencies(
      d, d.ceilings, {{{DType::f32}}, {.warmup = 1, .steps = 3, .seconds = 0.01}}, [&] { return steps > 2; },
      [&](double, const std::string&) { ++steps; });
  EXPECT_TRUE(m.by_precision.empty());
  EXPECT_LT(m.steps.size(), 4u);
}

TEST(MeasuredEfficiencies, AStepThatDoesNotFitIsLeftOutByName) {
  Device d = cpu();
  d.memory_bytes = 40 << 20;
  const auto m = measure_efficiencies(
      d, d.ceilings, {{{DType::f32}}, {.warmup = 0, .steps = 3, .seconds = 0.01}}, [] { return false; }, [](double, const std::string&) {});
  EXPECT_FALSE(m.left_out.empty());
  EXPECT_NE(m.left_out[0].find("could not be allocated"), std::string::npos) << m.left_out[0];
  EXPECT_FALSE(m.by_precision.empty());
}

}  // namespace
}  // namespace headroom::studies
