// What an expected time goes by: a card's own file, an H200's numbers, or nothing; how wide it is then, and what it says of that.
#include "engine/forecast/expected.h"
#include "engine/forecast/hopper.h"
#include "tests/engine/recorded_steps.h"

namespace headroom::engine {
namespace expected_tests {

double width(const Expected& e) { return e.high_ms / e.low_ms; }

// An H200 updates 2.7B's weights in 21.1 ms with whole moments, in 14.6 with 16-bit and in 11.3 with 8-bit ones (bench/lab/step.md).
TEST(ExpectedTime, SmallerMomentsTakeWhatTheirBytesDo) {
  Recipe r{model_described("large"), 1, 64, {DType::bf16}};
  r.holding.masters = Masters::halves, r.holding.gradients = Gradients::half;
  const auto update_ms = [&](Moments moments) {
    Recipe with = r, without = r;
    with.holding.moments = moments;
    without.purpose = Purpose::gradients;
    const Device d = device_described("h200");
    return forecast(with, d, 1).expected->ms - forecast(without, d, 1).expected->ms;
  };
  const double whole = update_ms(Moments::whole), half = update_ms(Moments::half), eight = update_ms(Moments::eight);
  EXPECT_NEAR(half / whole, 14.6 / 21.1, 0.06);
  EXPECT_NEAR(eight / whole, 11.3 / 21.1, 0.06);
}

TEST(ExpectedTime, IsWiderAndSaysWhyWhereLessWasMeasured) {
  Recipe r{model_described("small"), 4, 512, {DType::bf16}};
  const auto of = [&](const char* card) { return forecast(r, device_described(card), 1).expected; };
  const auto h200 = of("h200"), h100 = of("h100"), a100 = of("a100");
  ASSERT_TRUE(h200);
  EXPECT_GT(h200->ms, forecast(r, device_described("h200"), 1).ms);
  EXPECT_EQ(h200->by, "");
  ASSERT_TRUE(h100) << "by steps that an H100 measured itself";
  EXPECT_GT(h100->ms, forecast(r, device_described("h100"), 1).ms);
  ASSERT_TRUE(a100);
  EXPECT_GT(width(*a100), 1.3 * width(*h200));
  EXPECT_NE(a100->by.find("H200"), std::string::npos) << a100->by;
  const auto wider = [&](const Recipe& other, const char* says) {
    const auto e = forecast(other, device_described("h200"), 1).expected;
    ASSERT_TRUE(e) << says;
    EXPECT_GT(e->ms, 0);
    EXPECT_GT(width(*e), width(*h200)) << says;
    EXPECT_NE(e->by.find(says), std::string::npos) << e->by;
  };
  Recipe other = r;
  other.precision = {DType::f16};
  EXPECT_NE(forecast(other, device_described("a100"), 1).expected->by.find("steps in bf16"), std::string::npos);
  EXPECT_EQ(forecast(other, device_described("h200"), 1).expected->by, "") << "its kernels were timed";
  other = r, other.precision = *precision_named("tf32");
  EXPECT_NE(forecast(other, device_described("a100"), 1).expected->by.find("steps in FP32 and bf16"), std::string::npos);
  other = r, other.attention = "plain";
  wider(other, "scores");
  other = r, other.ranks.count = 4;
  wider(other, "link");
  other = r, other.ranks.count = 2, other.ranks.split_tokens = true;
  wider(other, "link");
  other = r, other.ranks.count = 2;
  const auto two = forecast(other, device_described("h200"), 1).expected;
  ASSERT_TRUE(two);
  EXPECT_LT(width(*two), 1.06 * width(*h200)) << "two cards were measured, and the step waits little for their link";
}

// An H200 whose clock is held down, by its own measurement.
TEST(ExpectedTime, SaysThatSlowerUnitsGoByRooflines) {
  const Recipe r{model_described("small"), 4, 512, {DType::bf16}};
  Device d = device_described("h200");
  const std::string words = "its products reach less than 0.8 of an H200's for each multiprocessor";
  EXPECT_EQ(forecast(r, d, 1).expected->by.find(words), std::string::npos);
  d.ceilings.bf16_flops *= 0.79;
  EXPECT_NE(forecast(r, d, 1).expected->by.find(words), std::string::npos) << forecast(r, d, 1).expected->by;
  const Efficiency own{.precision = {DType::bf16}};
  d.efficiencies = std::make_shared<const Efficiencies>(Efficiencies{{own}, d.ceilings, ""});
  EXPECT_EQ(forecast(r, d, 1).expected->by.find(words), 0u) << forecast(r, d, 1).expected->by;
  const auto h20 = forecast(r, device_described("h20"), 1).expected;
  EXPECT_EQ(h20->by.find(words), std::string::npos) << "nothing was measured on it";
}

// Parts of tiles take as long as whole ones. Of 129 positions backward took 54 us, of 128 71, where heads are wider than 128.
TEST(ExpectedTime, LongerSequencesTakeNoLessTime) {
  for (const char* card : {"h200", "a100"})
    for (const char* precision : {"bf16", "fp32"})
      for (const std::int64_t dim : {64, 192, 256}) {
        double shorter = 0;
        for (const std::int64_t len : {64, 100, 127, 128, 129, 160, 255, 256, 257, 320, 384, 385, 512, 513, 1024, 1025}) {
          PlainModel c = *plain_of(model_described("small"));
          c.layers = 1, c.heads = c.kv_heads = 4, c.width = 4 * dim, c.head_dim = dim;
          Recipe r{decoder_of(c), 2, len, *precision_named(precision)};
          r.purpose = Purpose::gradients;
          const Device d = device_described(card);
          const OpTimes times = *op_times(r, d).times;
          double ms = 0;
          for (const OpCall& op : forecast(r, d, 1).walk.steps)
            if (op.work == Work::attention && op.making == Making::gradients) ms += expected_ms(op, r, times);
          EXPECT_GT(ms, 0);
          EXPECT_GE(ms, shorter * (1 - 1e-9)) << card << " " << precision << " head dim " << dim << " len " << len;
          shorter = ms;
        }
      }
}

TEST(ExpectedTime, HasAReasonWhereThereIsNone) {
  Recipe r{model_described("small"), 1, 64, {}};
  const Forecast cpu = forecast(r, Device{}, 1);
  EXPECT_FALSE(cpu.expected);
  EXPECT_NE(cpu.why_no_ms, "");
  Recipe counted{model_described("mixtral-8x7b"), 1, 64, {DType::bf16}};
  const Forecast of_counted = forecast(counted, device_described("h200"), 1);
  EXPECT_FALSE(of_counted.expected);
  EXPECT_NE(of_counted.why_no_ms.find("counted"), std::string::npos) << of_counted.why_no_ms;
  Device measured = device_described("h200");  // in FP32 alone
  measured.efficiencies = std::make_shared<const Efficiencies>(Efficiencies{{Efficiency{.precision = {}}}, measured.ceilings, ""});
  r.precision = {DType::bf16};
  const Forecast bf16 = forecast(r, measured, 1);
  EXPECT_FALSE(bf16.expected);
  EXPECT_NE(bf16.why_no_ms.find("--efficiencies --precision bf16"), std::string::npos) << bf16.why_no_ms;
}

// A file of a version that fitted steps to rooflines works as it did and says what to do. In one from before kernels were counted an op begins once and
// the loss was fitted with its long rows: it is known less well.
TEST(ExpectedTime, TakesAnOlderFileAsItWasMeant) {
  const Recipe r{model_in("small width 512 heads 8 layers 4 vocab 50304"), 4, 512, {DType::bf16}};
  const Device h200 = device_described("h200");
  Efficiencies old = efficiencies_of_others();
  const auto second = forecast(r, with_efficiencies(h200, old), 1).expected;
  for (Efficiency& e : old.by_precision) {
    EXPECT_TRUE(e.of_kernels);
    EXPECT_FALSE(e.of_units);
    e.of_kernels = false, e.loss = 1.352, e.backward_op_ms = 0.004704;  // as they were recorded
  }
  const auto first = forecast(r, with_efficiencies(h200, old), 1).expected;
  ASSERT_TRUE(second && first);
  EXPECT_NEAR(first->ms / second->ms, 1, 0.05);
  EXPECT_GT(first->high_ms / first->ms, 1.05 * second->high_ms / second->ms);
  EXPECT_EQ(forecast(r, h200, 1).expected->by, "");
  for (const std::string& by : {first->by, second->by})
    EXPECT_NE(by.find("headroom device --efficiencies --save measures them again"), std::string::npos) << by;
}

// A card's own factors over what its units take: a card whose products take a tenth longer forecasts that.
TEST(ExpectedTime, TakesItsOwnFactorsOverUnits) {
  const Recipe r{model_described("large"), 4, 1024, {DType::bf16}};
  const Device h200 = device_described("h200");
  Efficiency e{.precision = {DType::bf16}, .within = 1.2, .of_units = true};
  const auto as_recorded = forecast(r, with_efficiencies(h200, {{e}, {}, ""}), 1).expected;
  e.product = e.gradient_product = 1.1;
  const auto slower = forecast(r, with_efficiencies(h200, {{e}, {}, ""}), 1).expected, recorded = forecast(r, h200, 1).expected;
  ASSERT_TRUE(as_recorded && slower && recorded);
  EXPECT_DOUBLE_EQ(as_recorded->ms, recorded->ms);
  EXPECT_GT(as_recorded->high_ms, recorded->high_ms) << "its steps lie further apart";
  EXPECT_GT(slower->ms, 1.04 * recorded->ms);
  EXPECT_LT(slower->ms, 1.1 * recorded->ms);
}

// A card's own file without a ceiling of 8 bits: products took the time of their bytes alone.
TEST(ExpectedTime, TakesWhatWasNotMeasuredWithTheStepsFromTheCard) {
  const Recipe r{model_described("2.7B"), 4, 1024, {DType::e4m3}};
  const Device h200 = device_described("h200");
  const auto ms = [&](double fp8_flops) {
    Device d = with_efficiencies(h200, efficiencies_of_others());
    Efficiencies own = *d.efficiencies;
    own.ceilings.fp8_flops = fp8_flops;
    d.efficiencies = std::make_shared<const Efficiencies>(own);
    return forecast(r, d, 1).expected->ms;
  };
  EXPECT_NEAR(ms(0) / ms(h200.ceilings.fp8_flops), 1, 1e-9);
}

// A step that needs more power than a card may draw runs at a lower clock: 2.7B at 1440 to 1575 MHz of 1980.
TEST(ExpectedTime, HoldsProductsBackWhereTheCardIsLimitedByPower) {
  EXPECT_EQ(hopper::longer_at_its_clock(0.5, 1), 1) << "500 W and what it takes idle";
  EXPECT_GT(hopper::longer_at_its_clock(0.8, 1), 1.05);
  EXPECT_LT(hopper::longer_at_its_clock(0.9, 1), 1.25);
}

}  // namespace expected_tests
}  // namespace headroom::engine
