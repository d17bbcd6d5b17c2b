// A fit finds what steps are made of, and devices.json says what the fit of the recorded steps says.
#include "engine/forecast/fit.h"

#include <nlohmann/json.hpp>

#include "tests/engine/recorded_steps.h"

namespace headroom::engine {
namespace expected_tests {

std::vector<double> fitted_numbers(const Efficiency& e) {
  std::vector<double> numbers;
  describe(e, [&](const auto& member, const Description& d) {
    const std::string_view name = d.name;
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, double>)
      if (name != "link" && name != "within") numbers.push_back(member);
  });
  return numbers;
}

// Steps of many kinds of models, whose times are what `e` says of them.
std::vector<StepMeasured> steps_made_of(const Efficiency& e, Device d) {
  d.efficiencies = std::make_shared<const Efficiencies>(Efficiencies{{e}, d.ceilings, ""});
  std::vector<StepMeasured> steps;
  for (const char* model : {"small", "small width 256 heads 4 layers 2 vocab 50304", "small width 2048 heads 16 layers 2",
                            "small width 512 heads 8 ffn 512 layers 2 vocab 1000", "small width 128 heads 2 layers 8", "medium",
                            "2.7B layers 2", "2.7B layers 1 ffn 2048 vocab 1000", "small width 512 heads 4 layers 2 ffn 256 vocab 1000"})
    for (const std::int64_t len : {128, 1024, 8192})
      for (const Purpose purpose : {Purpose::forward, Purpose::gradients, Purpose::training}) {
        Recipe r{model_in(model), 2, len, e.precision};
        r.purpose = purpose;
        steps.push_back({r, forecast(r, d, 1).expected->ms});
      }
  return steps;
}

// A fit finds `e` again.
void expect_found(const Device& d, const Efficiency& e, double within) {
  const auto steps = steps_made_of(e, d);
  const std::vector<double> found = fitted_numbers(fitted(e.precision, steps, d.ceilings, d, 1)), made_of = fitted_numbers(e);
  for (std::size_t i = 0; i < made_of.size(); ++i) EXPECT_NEAR(found.at(i), made_of[i], within * made_of[i]) << i;
  const auto foretold = foretold_by_others(e.precision, steps, d.ceilings, d, 1);
  ASSERT_EQ(foretold.size(), steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_NEAR(foretold[i] / steps[i].ms, 1, within) << steps[i].recipe.model.name;
}

// What devices.json says of other cards is what the code that fits a card's steps to its rooflines makes of an H200's.
TEST(ExpectedTime, TheNumbersOfOthersAreTheFitOfTheRecordedSteps) {
  std::vector<Step> measured;
  for (const auto& list : {recorded("h200_step_seeds_2026-11-21.csv"), recorded("h200_step_shapes_2026-11-23.csv"), of_each_kind()})
    measured.insert(measured.end(), list.begin(), list.end());
  const Device h200 = device_described("h200");
  EXPECT_EQ(efficiencies_of_others().by_precision.size(), 2u);
  for (const Efficiency& recorded_one : efficiencies_of_others().by_precision) {
    std::vector<StepMeasured> steps;
    for (const Step& s : measured)
      if (s.recipe.precision == recorded_one.precision && !while_clocks_rose(s)) steps.push_back({s.recipe, s.ms});
    const Device card = as_recorded(h200, steps.at(0).recipe);
    const std::vector<double> found = fitted_numbers(fitted(recorded_one.precision, steps, card.ceilings, card, 1, Over::rooflines)),
                              said = fitted_numbers(recorded_one);
    ASSERT_EQ(found.size(), said.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], said[i], 0.001 * said[i] + 1e-6) << name_of(recorded_one.precision) << " " << i;
  }
}

TEST(ExpectedTime, AFitFindsWhatStepsAreMadeOf) {
  Efficiency e{.precision = {DType::bf16},
               .product = 1.3,
               .gradient_product = 1.5,
               .elementwise = 1.2,
               .loss = 1.1,
               .update = 1,
               .attention_64 = 2,
               .attention_64_backward = 1.7,
               .attention_128 = 1.4,
               .attention_128_backward = 1.6,
               .forward_op_ms = 0.004,
               .backward_op_ms = 0.006};
  Device d = device_described("h100");
  d.ceilings.bf16_flops = 400e12;  // units of another kind: over rooflines
  expect_found(d, e, 0.05);
  e.of_units = true, e.forward_op_ms = e.backward_op_ms = 0;
  e.product = 1.1, e.gradient_product = 1.15, e.attention_64 = 1.1, e.attention_64_backward = 0.95, e.attention_128 = 1.05;
  e.attention_128_backward = 1.1, e.elementwise = 0.95, e.loss = 1.05;
  expect_found(device_described("h100"), e, 0.18);
}

// Steps that would say that a kind of work gives time back: the fit says the least that a file may hold.
TEST(ExpectedTime, AFitGivesNoFactorThatAFileMayNotHold) {
  Device d = device_described("h100");
  d.ceilings.bf16_flops = 400e12;
  const auto steps = steps_made_of({.precision = {DType::bf16}, .elementwise = -0.5, .forward_op_ms = 0.004, .backward_op_ms = 0.006}, d);
  const Efficiency e = fitted({DType::bf16}, steps, d.ceilings, d, 1);
  EXPECT_EQ(e.elementwise, least_factor);
  EXPECT_NEAR(e.product, 1, 0.2) << "the others are fitted again";
  d.efficiencies = std::make_shared<const Efficiencies>(Efficiencies{{e}, d.ceilings, ""});
  EXPECT_NO_THROW(device_from_json(nlohmann::json::parse(device_file_text(d))));
}

TEST(ExpectedTime, AFitOfNothingStaysNearTheRoofline) {
  const Device d = device_described("h100");
  const Efficiency e = fitted({}, {}, d.ceilings, d, 1);
  EXPECT_NEAR(e.product, 1, 1e-9) << "over what the units take";
  EXPECT_TRUE(e.of_units);
  EXPECT_EQ(e.forward_op_ms, 0);
  EXPECT_EQ(e.within, 1);
  EXPECT_NEAR(fitted({}, {}, d.ceilings, d, 1, Over::rooflines).product, 1.1, 1e-9);
}

}  // namespace expected_tests
}  // namespace headroom::engine
