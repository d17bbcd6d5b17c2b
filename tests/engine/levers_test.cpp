// The levers of a step: their lists, their words, and that a recipe has what was asked.
#include "tests/levers.h"

#include <gtest/gtest.h>

#include "engine/forecast/forecast.h"
#include "store/described_json.h"

namespace headroom::engine {
namespace {

TEST(Levers, EveryValueIsTakenSomewhere) {
  std::set<std::string> refused;
  const auto cases = lever_cases(&refused);
  EXPECT_TRUE(refused.empty()) << *refused.begin() << ": the engine takes it with none of tests/levers.h's companions";
  std::set<std::string> names;
  for (const LeverCase& c : cases) names.insert(c.lever);
  int described = 0;
  describe(Levers{}, [&](const auto&, const Description& d) {
    ++described;
    EXPECT_TRUE(names.contains(d.name)) << d.name;
    EXPECT_NE(std::string(d.about), "") << d.name << " is an option";
  });
  EXPECT_GE(described, 8);
}

TEST(Levers, ARecipeHasWhatWasAskedAndJsonReadsItBack) {
  for (const LeverCase& c : lever_cases()) {
    SCOPED_TRACE(c.lever + " " + c.word);
    const Recipe r = step_of_levers(c.levers);
    Levers said = r;
    if (!c.levers.scales && r.formats().quantised()) said.scales.reset();  // the recipe names the usual ones
    EXPECT_EQ(said, c.levers);
    const auto words = changed(r);
    const bool usual = std::none_of(words.begin(), words.end(), [&](const auto& w) { return w.first == c.lever; });
    EXPECT_EQ(changed_in_words(r).find(c.lever + " " + c.word) == std::string::npos, usual) << changed_in_words(r);
    EXPECT_EQ(read_described<Levers>(json_of(c.levers), "levers"), c.levers);
    EXPECT_EQ(key_of(r).find("\"" + c.lever + "\":\"" + c.word + "\"") != std::string::npos, true) << key_of(r);
  }
}

TEST(Levers, ListsAreEveryCombinationOnce) {
  LeverLists lists;
  lists.precision = {{DType::bf16}, {DType::e4m3}};
  lists.scales = {Scales::row, Scales::block};
  lists.logits = {Logits::whole, Logits::half};
  const auto all = each_of(lists);
  ASSERT_EQ(all.size(), 6u) << "bf16 has no scales";
  EXPECT_FALSE(all[0].scales);
  EXPECT_EQ(all[0].logits, Logits::whole);
  EXPECT_EQ(all[1].logits, Logits::half) << "the last lever changes first";
  EXPECT_EQ(all[2].scales, Scales::row);
  EXPECT_EQ(all[5].scales, Scales::block);
  for (const Levers& l : all) EXPECT_EQ(each_of(lists_of(l)), std::vector{l});
  EXPECT_EQ(only_of(lists_of(all[5]), "a profile"), all[5]);
  try {
    only_of(lists, "a profile");
    ADD_FAILURE();
  } catch (const Error& e) { EXPECT_STREQ(e.what(), "--precision: a profile takes one value; 2 were given"); }
  lists.keep.clear();
  EXPECT_TRUE(each_of(lists).empty());
}

TEST(Levers, AListIsReadFromOneValueToo) {
  const auto read = [](const char* text) { return read_described<LeverLists>(RowObject::parse(text), "settings"); };
  const LeverLists one = read(R"({"precision": ["bf16"], "keep": "input", "scales": null, "masters": "halves"})");
  LeverLists wanted;
  wanted.precision = {{DType::bf16}}, wanted.keep = {{Keep::input}}, wanted.holding.masters = {Masters::halves};
  EXPECT_EQ(one, wanted);
  EXPECT_EQ(read(R"({"keep": ["input", "auto"]})").keep, (std::vector{Keeping{Keep::input}, Keeping::automatic()}));
  EXPECT_THROW(read(R"({"masters": "thirds"})"), Error);
  EXPECT_THROW(read(R"({"masters": ["whole", 3]})"), Error);
}

}  // namespace
}  // namespace headroom::engine
