// What blocks keep changes no bit.
#include "engine/pass/training.h"

#include <gtest/gtest.h>

#include "tests/engine/dense.h"
#include "tests/engine/lively.h"
#include "tests/engine/workshop.h"

namespace headroom::engine {
namespace {

// Levels below `everything`, and two that take turns.
const std::vector<std::vector<Keep>> lesser_keeps = {
    {Keep::no_product}, {Keep::no_cheap}, {Keep::no_attention_inputs}, {Keep::input}, {Keep::input, Keep::everything}};

TEST(Training, EveryKeepLevelGivesTheSameBits) {
  for (const char* precision : {"fp32", "bf16", "fp8"})
    for (const char* attention : {"flash", "plain"}) {
      Recipe r{tiny(), 2, 9, *precision_named(precision)};
      r.attention = attention;
      change_sizes(r.model, [&](PlainModel& m) { m.qkv_bias = m.qk_norm = precision == std::string("bf16"); });
      Workshop all(r);
      fill_lively(all);
      all.training.backward();
      for (const std::vector<Keep>& keep : lesser_keeps) {
        r.keep = keep;
        Workshop less(r);
        fill_lively(less);
        less.training.backward();
        EXPECT_EQ(less.gradients(), all.gradients()) << name_of(keep[0]) << " " << precision << " " << attention;
        EXPECT_EQ(less.training.loss(), all.training.loss());
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
      Workshop all(r);
      fill_lively(all);
      all.training.backward();
      for (const std::vector<Keep>& keep : lesser_keeps) {
        r.keep = keep;
        Workshop less(r);
        fill_lively(less);
        less.training.backward();
        EXPECT_EQ(less.gradients(), all.gradients()) << m.name << " " << name_of(keep[0]) << " " << precision;
        EXPECT_EQ(less.training.loss(), all.training.loss());
        EXPECT_EQ(less.arena.peak(), less.predicted) << m.name;
      }
      r.keep = {Keep::no_cheap, 2};
      Workshop groups(r);
      fill_lively(groups);
      groups.training.backward();
      EXPECT_EQ(groups.gradients(), all.gradients()) << m.name;
      EXPECT_EQ(groups.arena.peak(), groups.predicted) << m.name;
    }
}

}  // namespace
}  // namespace headroom::engine
