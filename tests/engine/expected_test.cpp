// Expected times against steps that were measured. None of an H200's and H100's were fitted: their kernels were, one by one, in other steps.
#include "engine/forecast/expected.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/recorded_steps.h"

namespace headroom::engine {
namespace expected_tests {

double expect_between(const std::vector<Step>& steps) {  // RMS of the relative error
  const Device h200 = device_described("h200");
  double squares = 0;
  int count = 0;
  for (const Step& s : steps) {
    if (while_clocks_rose(s)) continue;
    const Forecast f = forecast(s.recipe, as_recorded(h200, s.recipe), 1);
    const auto& e = f.expected;
    EXPECT_TRUE(e) << s.words;
    if (!e) continue;
    EXPECT_GE(e->low_ms, f.ms) << s.words << ": the interval begins below the bound";
    constexpr double ceilings_within = 1.002;  // they were measured: three steps in FP32 took 0.001 to 0.2 % less
    EXPECT_LE(f.ms, ceilings_within * s.ms) << s.words << ": it ran faster than its bound";
    EXPECT_LE(e->low_ms, s.ms * (e->low_ms == f.ms ? ceilings_within : 1)) << s.words;
    EXPECT_GE(e->high_ms, s.ms) << s.words;
    squares += std::pow(e->ms / s.ms - 1, 2), ++count;
  }
  return std::sqrt(squares / count);
}

TEST(ExpectedTime, HoldsForEveryRecordedStep) {
  const auto all = recorded("h200_step_seeds_2026-11-21.csv");
  ASSERT_EQ(all.size(), 120u);
  EXPECT_LT(expect_between(all), 0.05);
  const auto shapes = recorded("h200_step_shapes_2026-11-23.csv");
  ASSERT_EQ(shapes.size(), 28u);
  EXPECT_LT(expect_between(shapes), 0.065);
  const auto each_kind = of_each_kind();
  ASSERT_EQ(each_kind.size(), 76u);
  EXPECT_LT(expect_between(each_kind), 0.067);
}

TEST(ExpectedTime, HoldsForStepsThatItWasNotFittedTo) {
  const auto other_levers = recorded("h200_step_two_gpus_2026-11-22.csv");
  ASSERT_GE(other_levers.size(), 6u);
  EXPECT_LT(expect_between(other_levers), 0.06);
  const auto other_card = recorded("h200_step_two_gpus_peer_copies_2026-11-22.csv");
  ASSERT_GE(other_card.size(), 6u);
  EXPECT_LT(expect_between(other_card), 0.06);
  const auto other_shapes = recorded("h200_step_head_2026-11-22.csv", "halves");
  ASSERT_GE(other_shapes.size(), 15u);
  expect_between(other_shapes);
}

TEST(ExpectedTime, HoldsForTwoCardsThatShareAStep) {
  const auto all = recorded("h200_step_two_gpus_peer_copies_2026-11-22.csv", "", 2);
  ASSERT_EQ(all.size(), 21u);
  EXPECT_LT(expect_between(all), 0.045);
}

// In 8 bits no fit was made: products and quantising are a share of bf16's. The steps of an H200, by every kind of scale.
TEST(ExpectedTime, HoldsForStepsInFp8) {
  const auto steps = recorded("h200_step_fp8_2026-11-22.csv", "halves");
  const auto in_fp8 = [](const Step& s) { return s.recipe.precision.dtype == DType::e4m3; };
  std::vector<Step> fp8;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(fp8), in_fp8);
  ASSERT_GE(fp8.size(), 9u);
  EXPECT_LT(expect_between(fp8), 0.04);
}

void expect_inside(Recipe r, double ms, double error) {
  const auto e = forecast(r, device_described("h200"), 1).expected;
  ASSERT_TRUE(e);
  EXPECT_LE(e->low_ms, ms) << name_of(r.precision);
  EXPECT_GE(e->high_ms, ms) << name_of(r.precision);
  EXPECT_NEAR(e->ms / ms, 1, error) << name_of(r.precision);
}

// Random settings of bench/results/h200_random_steps_2911_2026-11-26.csv. Capped scores and tf32 are attended by flash_sm80 in a step, capped logits cost
// instructions: forecasts were 24 to 31 % too short before any of it was counted.
TEST(ExpectedTime, CountsCapsAndTheOlderKernels) {
  const auto gemma = [](int width, int layers, int heads, int kv_heads, int ffn, int vocab) {
    return model_from_json(
        fmt::format(R"({{"architectures":["Gemma2ForCausalLM"],"model_type":"gemma2","hidden_size":{},"num_hidden_layers":{},
      "num_attention_heads":{},"head_dim":{},"num_key_value_heads":{},"intermediate_size":{},"vocab_size":{},"max_position_embeddings":8192,
      "rope_theta":10000.0,"rms_norm_eps":1e-6,"attention_bias":false,"hidden_activation":"gelu_pytorch_tanh","attn_logit_softcapping":50.0,
      "final_logit_softcapping":30.0,"query_pre_attn_scalar":{},"sliding_window":4096,"tie_word_embeddings":true}})",
                    width, layers, heads, width / heads, kv_heads, ffn, vocab, width / heads),
        "gemma");
  };
  Recipe r{gemma(512, 2, 4, 1, 1536, 50304), 8, 2048, {DType::bf16}};
  r.logits = Logits::half, r.holding.moments = Moments::half;
  r.keep = *WordsOf<Keeping>::named("no-product");
  expect_inside(r, 10.167, 0.06);
  r = Recipe{gemma(256, 4, 4, 4, 768, 32000), 4, 200, {DType::bf16}};
  r.logits = Logits::half, r.purpose = Purpose::forward;
  expect_inside(r, 0.2916, 0.2);
  r = Recipe{gemma(512, 8, 4, 1, 2048, 32000), 4, 1024, *precision_named("tf32")};
  r.holding.moments = Moments::half;
  expect_inside(r, 13.846, 0.1);
}

// A scale of a whole tensor takes three launches: narrow models wait for them.
TEST(ExpectedTime, CountsTheLaunchesOfQuantising) {
  Recipe r{model_in("small width 256 heads 2 layers 2 ffn 512 vocab 1000"), 2, 128, {DType::e4m3}};
  r.purpose = Purpose::gradients, r.scales = Scales::tensor;
  r.keep = *WordsOf<Keeping>::named("input");
  expect_inside(r, 0.6159, 0.1);
  r = Recipe{model_in("small width 128 heads 2 layers 1 ffn 256 vocab 1000"), 3, 2048, {DType::e4m3}};
  r.scales = Scales::row, r.holding.gradients = Gradients::half, r.holding.moments = Moments::half;
  expect_inside(r, 0.4392, 0.25);
}

// An H100's own steps: by its units, and by an H200's numbers over rooflines at the H100's ceilings, which is what is said of cards that were not measured.
TEST(ExpectedTime, HoldsForAnH100AndAnH200ForetellsIt) {
  for (const bool by_units : {true, false}) {
    Device h100 = device_described("h100");
    if (!by_units) h100 = with_efficiencies(h100, efficiencies_of_others());
    int inside = 0;
    const auto steps = of_each_kind("h100_steps_2026-11-24.csv");
    ASSERT_EQ(steps.size(), 76u);
    for (const Step& s : steps) {
      const auto e = forecast(s.recipe, as_recorded(h100, s.recipe), 1).expected;
      ASSERT_TRUE(e);
      inside += e->low_ms <= s.ms && s.ms <= e->high_ms;
    }
    EXPECT_GE(inside, 72) << by_units;
  }
}

// Two cards whose host keeps what blocks make: its copies run beside the step (h200_step_8B_two_gpus_2026-11-22.txt, _8B_host_).
TEST(ExpectedTime, HoldsForBlocksThatKeepOnTheHost) {
  Recipe r{model_described("8B"), 1, 32768, {DType::bf16}};
  r.holding = {Masters::halves, Updating::during, Gradients::half};
  r.logits = Logits::half;
  r.keep = *WordsOf<Keeping>::named("host:12:no-cheap");
  r.ranks.count = 2, r.ranks.sharding = Sharding::optimizer;
  as_then(r);
  const auto e = forecast(r, device_described("h200"), 1).expected;
  ASSERT_TRUE(e);
  EXPECT_LT(e->low_ms, 4164.2);
  EXPECT_GT(e->high_ms, 4367.5);
  EXPECT_NEAR(e->ms / 4254.2, 1, 0.08);
}

}  // namespace expected_tests
}  // namespace headroom::engine
