// A forecast step's time: its interval, its parts, and the cards that were not measured.
#include <gtest/gtest.h>

#include "gpu/architecture.h"
#include "studies/forecast/forecast.h"

namespace headroom::studies {
namespace {

dry::StepTimed one_step(double s, double products_s, double idle_s) {
  dry::StepTimed t;
  t.step.emplace();
  t.step->s = s;
  t.low_s = 0.9 * s;
  t.high_s = 1.2 * s;
  t.step->idle_s = idle_s;
  t.step->host_s = 0.002;
  t.step->parts[0] = {products_s, 200, 1e12, 0};
  return t;
}

TEST(ForecastTime, HasAnIntervalPartsAndALimit) {
  const Device h200 = device_described("h200");
  const auto time = forecast_time(one_step(0.010, 0.008, 0.002), pytorch::rates_of(h200), h200);
  ASSERT_TRUE(time.ms);
  EXPECT_NEAR(*time.ms, 10, 1e-9);
  EXPECT_EQ(time.limit, "matrix products");
  ASSERT_EQ(time.parts.size(), 2u);
  EXPECT_NEAR(time.parts[0].ms + time.parts[1].ms, *time.ms, 1e-9);
  EXPECT_NEAR(time.launch_us, 10, 1e-9);
  EXPECT_NEAR(time.tflops, 100, 1e-9);
  EXPECT_EQ(forecast_time(one_step(0.010, 0.001, 0.009), pytorch::rates_of(h200), h200).limit, "host");
}

TEST(ForecastTime, CollectivesAreNotMeasuredAndWidenTheInterval) {
  const Device h200 = device_described("h200");
  dry::StepTimed step = one_step(0.010, 0.005, 0);
  step.step->parts[std::size_t(dry::Part::collectives)] = {0.004, 10, 0, 1e9};
  const auto time = forecast_time(step, pytorch::rates_of(h200), h200);
  EXPECT_NEAR(*time.ms_low, 9 * 0.8, 1e-9);
  EXPECT_NEAR(*time.ms_high, 12 * 1.4, 1e-9);
  EXPECT_NE(time.source.find("collectives"), std::string::npos);
  step.step->least_s = 0.008;
  EXPECT_NEAR(*forecast_time(step, pytorch::rates_of(h200), h200).ms_low, 8, 1e-9) << "products take that at the card's most";
}

TEST(ForecastTime, ACardThatWasNotMeasuredHasAWiderIntervalThatSaysSo) {
  const auto measured = pytorch::rates_of(device_described("h200"));
  for (const Device& device : known_devices()) {
    if (device.key == "h200") continue;
    const auto rates = pytorch::rates_of(device);
    ASSERT_EQ(bool(rates), architecture_of(device.sm).runs_cuda) << device.key;
    if (!rates) {
      EXPECT_NE(pytorch::why_no_rates(device).find("runs no CUDA"), std::string::npos) << device.key;
      continue;
    }
    EXPECT_LT(rates->low, measured->low);
    EXPECT_GT(rates->high, measured->high);
    EXPECT_NE(rates->source.find("not measured"), std::string::npos);
  }
}

TEST(ForecastTime, AFasterHostTakesLessAndSaysSo) {
  const Device h200 = device_described("h200");
  const auto measured = pytorch::rates_of(h200), twice = pytorch::rates_of(h200, 2);
  ASSERT_TRUE(measured && twice);
  EXPECT_DOUBLE_EQ(twice->host.operation_s, measured->host.operation_s / 2);
  EXPECT_DOUBLE_EQ(twice->host.launch_s, measured->host.launch_s / 2);
  EXPECT_DOUBLE_EQ(twice->bare_launch_s, measured->bare_launch_s / 2);
  EXPECT_DOUBLE_EQ(twice->brain.large, measured->brain.large) << "the card is the same";
  EXPECT_NE(twice->source.find("2 times as fast"), std::string::npos) << twice->source;
}

TEST(ForecastTime, ACardWithoutTensorCoresForATypeMultipliesItAsFp32) {
  const Device t4 = device_described("t4");
  ASSERT_EQ(t4.ceilings.bf16_flops, 0);
  const auto rates = pytorch::rates_of(t4);
  ASSERT_TRUE(rates);
  EXPECT_DOUBLE_EQ(rates->brain.large, rates->single.large);
  EXPECT_DOUBLE_EQ(rates->tf32.large, rates->single.large);
  EXPECT_GT(rates->half.large, 4 * rates->single.large);
  const auto newer = pytorch::rates_of(device_described("a100"));
  EXPECT_DOUBLE_EQ(newer->brain.large, newer->half.large);
  EXPECT_GT(newer->tf32.large, 4 * newer->single.large);
}

TEST(ForecastTime, WithoutATimeThereIsAReason) {
  Device unknown = device_described("h200");
  unknown.name = "A card of tomorrow";
  unknown.ceilings = {};
  EXPECT_FALSE(pytorch::rates_of(unknown));
  const auto time = forecast_time(one_step(1, 1, 0), pytorch::rates_of(unknown), unknown);
  EXPECT_FALSE(time.ms);
  EXPECT_NE(time.why.find("headroom device"), std::string::npos);
  const Device h200 = device_described("h200");
  EXPECT_EQ(forecast_time({{}, "no step"}, pytorch::rates_of(h200), h200).why, "no step");
}

}  // namespace
}  // namespace headroom::studies
