// What blocks keep changes no bit.
#include "engine/pass/training.h"

#include <gtest/gtest.h>

#include <ostream>

#include "tests/engine/dense.h"
#include "tests/engine/lively.h"
#include "tests/engine/workshop.h"

namespace headroom::engine {
namespace {

// Levels below `everything`, and two that take turns.
const std::vector<std::vector<Keep>> lesser_keeps = {
    {Keep::no_product}, {Keep::no_cheap}, {Keep::no_attention_inputs}, {Keep::input}, {Keep::input, Keep::everything}};

// What backward gives of lively weights, which takes its forecast.
struct Given {
  std::vector<float> gradients;
  double loss;
  bool operator==(const Given&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Given& g) { return out << "loss " << g.loss; }
};
Given given(const Recipe& r) {
  Workshop w(r);
  fill_lively(w);
  w.training.backward();
  EXPECT_EQ(w.arena.peak(), w.predicted);
  return {w.gradients(), w.training.loss()};
}

TEST(Training, EveryKeepLevelGivesTheSameBits) {
  for (const char* precision : {"fp32", "bf16", "fp8"})
    for (const char* attention : {"flash", "plain"}) {
      Recipe r{tiny(), 2, 9, *precision_named(precision)};
      r.attention = attention;
      change_sizes(r.model, [&](PlainModel& m) { m.qkv_bias = m.qk_norm = precision == std::string("bf16"); });
      const Given all = given(r);
      for (const std::vector<Keep>& keep : lesser_keeps) {
        r.keep = keep;
        EXPECT_EQ(given(r), all) << name_of(keep[0]) << " " << precision << " " << attention;
      }
    }
}

// Of 2 to all blocks, the last group smaller, with one or more micro-batches; and updates on the way.
TEST(Training, BlocksInGroupsGiveTheSameBitsAndTakeTheirForecast) {
  for (const char* precision : {"fp32", "bf16", "fp8"})
    for (const bool during : {false, true}) {
      Recipe r{tiny(), 2, 9, *precision_named(precision)};
      change_sizes(r.model, [](PlainModel& m) { m.layers = 5; });
      if (during) r.holding.updating = Updating::during;
      const auto trained = [](const Recipe& recipe) {
        Workshop w(recipe);
        fill_lively(w);
        for (int step = 0; step < 2; ++step) w.training.step(recipe.served({.lr = 0.01}));
        EXPECT_EQ(w.arena.peak(), w.predicted);
        return std::pair(w.training.loss(), w.weights());
      };
      const auto whole = trained(r);
      for (const int group : {2, 3, 5})
        for (const Keep keep : {Keep::everything, Keep::no_cheap, Keep::input}) {
          r.keep = {keep, group};
          EXPECT_EQ(trained(r), whole) << precision << " " << WordsOf<Keeping>::to(r.kept_as());
        }
      r.keep = {};
    }
  Recipe r{tiny(), 1, 5, {}};
  r.keep = {Keep::input, 3};
  EXPECT_THROW(check(r), Error) << "of 2 blocks";
}

// Of L blocks in groups of K, L/K and K inputs are held, and one block's own tensors: less than with an input for each. Each block but the last
// of its group runs forward once more than that.
TEST(Training, GroupsHoldFewerInputsAndCostOneMoreForward) {
  Recipe r{model_described("2.7B"), 1, 2048, *precision_named("bf16")};
  const Device h200 = device_described("h200");
  const auto of = [&](const Keeping& k) {
    r.keep = k;
    return forecast(r, h200, 1);
  };
  const std::int64_t layers = r.model.depth(), input = r.len * r.model.width * 2;
  const Forecast all = of({}), least = of({Keep::input}), groups = of({Keep::input, 8});
  ASSERT_EQ(layers % 8, 0);
  EXPECT_EQ(std::int64_t(least.peak_bytes - groups.peak_bytes), (layers - layers / 8 - 7) * input);
  const double once_more = least.flops - all.flops, again = groups.flops - least.flops;
  // the last product of a half is not run where backward alone asks: the second forward is whole, and a little more than that
  EXPECT_GT(again, once_more * 7 / 8);
  EXPECT_LT(again, once_more * 1.6);
  EXPECT_EQ(of({Keep::input, 1}).peak_bytes, least.peak_bytes);
  r.keep = {Keep::input, 0};
  EXPECT_EQ(r.group(), 6) << "the root of 32";
}

TEST(Training, EveryKeepLevelOfEveryDenseFamilyGivesTheSameBits) {
  for (const DenseModel& m : dense_models())
    for (const char* precision : {"fp32", "bf16"}) {
      Recipe r{m.model, 2, 9, *precision_named(precision)};
      const Given all = given(r);
      for (const std::vector<Keep>& keep : lesser_keeps) {
        r.keep = keep;
        EXPECT_EQ(given(r), all) << m.name << " " << name_of(keep[0]) << " " << precision;
      }
      r.keep = {Keep::no_cheap, 2};
      EXPECT_EQ(given(r), all) << m.name << " in groups of 2 " << precision;
    }
}

}  // namespace
}  // namespace headroom::engine
