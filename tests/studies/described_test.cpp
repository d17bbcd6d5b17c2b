// One description, walked: a struct becomes JSON and comes back, becomes a table, and says which of its fields are the question.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/precision_words.h"
#include "engine/model/models.h"
#include "report/described_table.h"
#include "studies/attention/sweep.h"
#include "studies/step/step_time.h"

namespace headroom {
namespace {

enum class Fruit : std::uint8_t { apple, pear };

struct Basket {
  std::string owner = "me";
  Fruit fruit = Fruit::pear;
  std::vector<Fruit> others{Fruit::apple};
  Precision precision{DType::bf16, Math::exact};
  std::int64_t count = 3;
  bool ripe = true;
  std::optional<double> weight{};
  double price = 0.5;
};

void describe(Of<Basket> auto& b, auto&& f) {
  f(b.owner, {.name = "owner"});
  f(b.fruit, {.name = "fruit"});
  f(b.others, {.name = "others"});
  f(b.precision, {.name = "precision"});
  f(b.count, {.name = "count"});
  f(b.ripe, {.name = "ripe", .role = Role::noted, .show = Show::detail});
  f(b.weight, {.name = "weight", .role = Role::measured, .unit = Unit::bytes});
  f(b.price, {.name = "price", .role = Role::measured});
}

}  // namespace

template <>
inline constexpr auto names_of<Fruit> = names<Fruit>("apple", "pear");

namespace {

TEST(Described, JsonIsReadBackAsItWas) {
  Basket b;
  b.weight = 7.25, b.fruit = Fruit::apple, b.others = {};
  const RowObject j = json_of(b);
  EXPECT_EQ(j.dump(), R"({"owner":"me","fruit":"apple","others":[],"precision":"bf16","count":3,"ripe":true,"weight":7.25,"price":0.5})");
  EXPECT_EQ(json_of(read_described<Basket>(j, "a basket")), j);
  b.weight.reset(), b.price = std::nan("");
  EXPECT_TRUE(json_of(b)["weight"].is_null() && json_of(b)["price"].is_null());
  EXPECT_FALSE(read_described<Basket>(json_of(b), "a basket").weight);
}

TEST(Described, AnOlderRowLacksFieldsAndAWrongOneIsNamed) {
  const Basket b = read_described<Basket>(RowObject::parse(R"({"count": 9, "unheard": 1})"), "a basket");
  EXPECT_EQ(b.count, 9);
  EXPECT_EQ(b.fruit, Fruit::pear) << "the default";
  for (const char* bad : {R"({"fruit": "stone"})", R"({"fruit": 1})", R"({"count": 1.5})", R"({"ripe": 1})", R"({"others": 3})",
                          R"({"weight": "x"})", "[]"}) {
    try {
      read_described<Basket>(RowObject::parse(bad), "row 3");
      ADD_FAILURE() << bad;
    } catch (const Error& e) { EXPECT_TRUE(std::string(e.what()).starts_with("row 3 ")) << e.what(); }
  }
}

TEST(Described, TheKeyIsWhatWasAsked) {
  Basket a, b;
  b.weight = 1, b.price = 9, b.ripe = false;
  EXPECT_EQ(key_of(a), key_of(b)) << "the answer is not part of the question";
  b.fruit = Fruit::apple;
  EXPECT_NE(key_of(a), key_of(b));
}

TEST(Described, ATableHasUnitsAndRolesOfItsColumns) {
  const Table t = table_of("rows", "", std::vector<Basket>(2));
  ASSERT_EQ(t.columns.size(), 8u);
  EXPECT_EQ(t.columns[6].unit, Unit::bytes);
  EXPECT_EQ(t.columns[6].role, Role::measured);
  EXPECT_EQ(t.columns[5].show, Show::detail);
  EXPECT_EQ(t.rows[1][1], Value("pear"));
  EXPECT_EQ(t.rows[1][2], Value("apple"));
  EXPECT_EQ(t.rows[1][6], Value());
}

TEST(Described, AWordThatNamesNothingIsAnErrorAndNeverADefault) {
  EXPECT_EQ(value_named<engine::Gradients>("half", "--gradients"), engine::Gradients::half);
  try {
    value_named<engine::Gradients>("hal", "--gradients");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), "--gradients: there is no 'hal'; choose from whole, half, none; did you mean 'half'?");
  }
}

TEST(Described, SettingsOfStudiesComeBackFromTheStore) {
  studies::AttentionSweep sweep;
  sweep.masks = {attention::Mask::sliding(7)}, sweep.dtypes = {{DType::f32, Math::tf32}}, sweep.memory = 5;
  sweep.passes = studies::Passes::backward, sweep.protocol.until = 0.25;
  EXPECT_EQ(json_of(read_described<studies::AttentionSweep>(json_of(sweep), "settings")), json_of(sweep));
  studies::StepTime step;
  step.models = {engine::presets().front()}, step.levers.holding.gradients = {engine::Gradients::half}, step.warmups = {0, 5};
  EXPECT_EQ(json_of(read_described<studies::StepTime>(json_of(step), "settings")), json_of(step));
}

}  // namespace
}  // namespace headroom
