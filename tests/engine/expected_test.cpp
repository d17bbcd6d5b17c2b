// Expected times against steps that were measured: those that they were fitted to, and others that they were not.
#include "engine/expected.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "engine/forecast.h"

namespace headroom::engine {
namespace expected_tests {

struct Step {
  Recipe recipe;
  double ms = 0;
  std::string words;
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream s(line);
  for (std::string cell; std::getline(s, cell, ',');) cells.push_back(cell);
  return cells;
}

// "small", or "small layers 12 width 768 heads 12 ffn 2048 vocab 50304".
ModelConfig model_in(const std::string& words) {
  std::stringstream s(words);
  std::string name, field;
  s >> name;
  ModelConfig c = model_described(name);
  for (std::int64_t n = 0; s >> field >> n;) {
    if (field == "layers") c.layers = n;
    if (field == "width") c.width = n;
    if (field == "heads") c.heads = c.kv_heads = n;
    if (field == "ffn") c.ffn = n;
    if (field == "vocab") c.vocab = n;
  }
  return c;
}

// Rows of headroom step on so many cards. A line with # has the options of those after it.
std::vector<Step> recorded(const std::string& file, std::string options = "", int cards = 1) {
  std::ifstream in(std::string(HEADROOM_SOURCE_DIR) + "/bench/results/" + file);
  EXPECT_TRUE(in) << file;
  std::vector<Step> all;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) options = line;
    if (line.starts_with("#") || line.starts_with("model,") || (options.find("--gpus 2") != std::string::npos) != (cards == 2)) continue;
    const auto cells = cells_of(line);
    Step s{{model_in(cells.at(0)), std::stoll(cells.at(1)), std::stoll(cells.at(2)), *precision_named(cells.at(3))},
           std::stod(cells.at(5)),
           line};
    s.recipe.purpose = value_named<Purpose>(cells.at(4), "phase");
    if (options.find("halves") != std::string::npos) s.recipe.holding = {Masters::halves, Updating::during, Gradients::half};
    s.recipe.ranks.count = cards;
    for (const std::string& word : names_of<Sharding>.all())
      if (options.find("--shard " + word) != std::string::npos) s.recipe.ranks.sharding = *names_of<Sharding>.named(word);
    all.push_back(std::move(s));
  }
  return all;
}

// Steps of models that say much of one kind of work, measured by headroom device --efficiencies.
std::vector<Step> of_each_kind() {
  std::ifstream in(HEADROOM_SOURCE_DIR "/bench/results/h200_efficiencies_2026-11-23.csv");
  EXPECT_TRUE(in);
  std::vector<Step> all;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#") || line.starts_with("model,")) continue;
    const std::size_t end = line.starts_with('"') ? line.find('"', 1) + 1 : line.find(',');  // a name may have a comma
    const auto cells = cells_of(line.substr(end + 1));
    const auto number = [&](std::size_t i) { return std::stoll(cells.at(i)); };
    ModelConfig c;
    c.name = line.substr(0, end), c.width = number(0), c.layers = number(1), c.heads = number(2), c.kv_heads = number(3);
    c.head_dim = c.width / c.heads, c.ffn = number(4), c.vocab = number(5);
    Step s{{c, number(6), number(7), *precision_named(cells.at(8))}, std::stod(cells.at(10)), line};
    s.recipe.purpose = value_named<Purpose>(cells.at(9), "phase");
    all.push_back(std::move(s));
  }
  return all;
}

// The first rows that the card ran, while its clocks were still rising: their samples spread by up to 5 %.
bool while_clocks_rose(const Step& s) {
  return s.words.starts_with("small,4,128,fp32,forward,") || s.words.starts_with("small,4,128,fp32,forward+backward,");
}

double expect_between(const std::vector<Step>& steps) {  // RMS of the relative error
  const Device h200 = device_described("h200");
  double squares = 0;
  int count = 0;
  for (const Step& s : steps) {
    if (while_clocks_rose(s)) continue;
    const auto e = forecast(s.recipe, h200, 1).expected;
    EXPECT_TRUE(e) << s.words;
    if (!e) continue;
    EXPECT_LE(e->low_ms, s.ms) << s.words;
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
  EXPECT_LT(expect_between(shapes), 0.06);
  const auto each_kind = of_each_kind();
  ASSERT_EQ(each_kind.size(), 76u);
  EXPECT_LT(expect_between(each_kind), 0.06);
}

std::vector<double> fitted_numbers(const Efficiency& e) {
  std::vector<double> numbers;
  describe(e, [&](const auto& member, const Description& d) {
    const std::string_view name = d.name;
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, double>)
      if (name != "link" && name != "within") numbers.push_back(member);
  });
  return numbers;
}

// What devices.json says is what the code that fits a card's steps makes of the recorded ones.
TEST(ExpectedTime, TheRecordedNumbersAreTheFitOfTheRecordedSteps) {
  const Device h200 = device_described("h200");
  ASSERT_TRUE(h200.efficiencies);
  EXPECT_EQ(h200.efficiencies->by_precision.size(), 2u);
  for (const Efficiency& recorded_one : h200.efficiencies->by_precision) {
    std::vector<StepMeasured> steps;
    for (const auto& list : {recorded("h200_step_seeds_2026-11-21.csv"), recorded("h200_step_shapes_2026-11-23.csv"), of_each_kind()})
      for (const Step& s : list)
        if (s.recipe.precision == recorded_one.precision && !while_clocks_rose(s)) steps.push_back({s.recipe, s.ms});
    const std::vector<double> found = fitted_numbers(fitted(recorded_one.precision, steps, h200.ceilings, h200, 1)),
                              said = fitted_numbers(recorded_one);
    ASSERT_EQ(found.size(), said.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], said[i], 0.001 * said[i] + 1e-6) << name_of(recorded_one.precision) << " " << i;
  }
}

TEST(ExpectedTime, HoldsForStepsThatItWasNotFittedTo) {
  const auto other_levers = recorded("h200_step_two_gpus_2026-11-22.csv");
  ASSERT_GE(other_levers.size(), 6u);
  EXPECT_LT(expect_between(other_levers), 0.05);
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
  EXPECT_LT(expect_between(all), 0.03);
}

// Steps whose times are what `e` says of them: a fit finds that again, from so many kinds of models.
TEST(ExpectedTime, AFitFindsWhatStepsAreMadeOf) {
  Device d = device_described("h100");
  const Precision bf16{DType::bf16};
  const Efficiency e{.precision = bf16,
                     .product = 1.3,
                     .gradient_product = 1.5,
                     .elementwise = 1.2,
                     .loss = 2.5,
                     .update = 0.9,
                     .attention_64 = 2,
                     .attention_64_backward = 1.7,
                     .attention_128 = 1.4,
                     .attention_128_backward = 1.6,
                     .forward_op_ms = 0.004,
                     .backward_op_ms = 0.006};
  d.efficiencies = std::make_shared<const Efficiencies>(Efficiencies{{e}, d.ceilings, ""});
  std::vector<StepMeasured> steps;
  for (const char* model : {"small", "small width 256 heads 4 layers 2 vocab 50304", "small width 2048 heads 16 layers 2",
                            "small width 512 heads 8 ffn 512 layers 2 vocab 1000", "small width 128 heads 2 layers 8", "medium",
                            "2.7B layers 2", "small width 512 heads 4 layers 2 ffn 256 vocab 1000"})
    for (const std::int64_t len : {128, 1024, 8192})
      for (const Purpose purpose : {Purpose::forward, Purpose::gradients, Purpose::training}) {
        Recipe r{model_in(model), 2, len, bf16};
        r.purpose = purpose;
        steps.push_back({r, forecast(r, d, 1).expected->ms});
      }
  const std::vector<double> found = fitted_numbers(fitted(bf16, steps, d.ceilings, d, 1)), made_of = fitted_numbers(e);
  for (std::size_t i = 0; i < made_of.size(); ++i) EXPECT_NEAR(found.at(i), made_of[i], 0.05 * made_of[i]) << i;
  const auto foretold = foretold_by_others(bf16, steps, d.ceilings, d, 1);
  ASSERT_EQ(foretold.size(), steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_NEAR(foretold[i] / steps[i].ms, 1, 0.05) << steps[i].recipe.model.name;
}

TEST(ExpectedTime, AFitOfNothingStaysNearTheRoofline) {
  const Device d = device_described("h100");
  const Efficiency e = fitted({}, {}, d.ceilings, d, 1);
  EXPECT_NEAR(e.product, 1.1, 1e-9);
  EXPECT_EQ(e.forward_op_ms, 0);
  EXPECT_EQ(e.within, 1);
}

TEST(ExpectedTime, IsNotSaidWhereNothingWasMeasured) {
  Recipe r{model_described("small"), 4, 512, {DType::bf16}};
  const auto of = [&](const char* card) { return forecast(r, device_described(card), 1).expected; };
  ASSERT_TRUE(of("h200"));
  EXPECT_GT(of("h200")->ms, forecast(r, device_described("h200"), 1).ms);
  ASSERT_TRUE(of("h100")) << "by steps that an H100 measured itself";
  EXPECT_GT(of("h100")->ms, forecast(r, device_described("h100"), 1).ms);
  EXPECT_FALSE(of("a100"));
  r.precision = {DType::f16};
  EXPECT_FALSE(of("h200"));
  r.precision = {DType::bf16}, r.attention = "plain";
  EXPECT_FALSE(of("h200"));
  r.attention = "flash", r.ranks.count = 2;
  EXPECT_TRUE(of("h200"));
  r.ranks.count = 4;
  EXPECT_FALSE(of("h200"));
  r.ranks.count = 2, r.ranks.split_tokens = true;
  EXPECT_FALSE(of("h200"));
  r.ranks.split_tokens = false, r.precision = {};
  EXPECT_FALSE(of("h200"));
}

}  // namespace expected_tests
}  // namespace headroom::engine
