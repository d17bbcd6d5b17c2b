#include "base/json.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "base/text.h"

namespace headroom {
namespace {

std::string refusal_of_json(const std::string& text) {
  try {
    parse_json(text, "'x.json'");
  } catch (const Error& e) {
    EXPECT_EQ(e.at.code, Code::bad_argument);
    return e.what();
  }
  return "";
}
std::string nested(int levels) { return repeated("[", levels) + "1" + repeated("]", levels); }

TEST(JsonReader, ReadsWhatIsJsonInItsOrder) {
  EXPECT_EQ(parse_json(R"({"b": [1, 2.5, "ü"], "a": {"b": null}})", "x").dump(), R"({"a":{"b":null},"b":[1,2.5,"ü"]})");
  EXPECT_EQ(parse_json<nlohmann::ordered_json>(R"({"b": 1, "a": 2})", "x").dump(), R"({"b":1,"a":2})");
  EXPECT_TRUE(parse_json_or_discard("{").is_discarded());
  EXPECT_EQ(parse_json_or_discard<nlohmann::ordered_json>("[3]")[0], 3);
}

TEST(JsonReader, DeepNestingIsASentenceAndNotTheEndOfTheStack) {
  EXPECT_EQ(refusal_of_json(nested(most_json_levels)), "");
  EXPECT_EQ(refusal_of_json(nested(most_json_levels + 1)), "'x.json' is nested deeper than 100 levels");
  EXPECT_EQ(refusal_of_json(repeated("[", 1'000'000)), "'x.json' is nested deeper than 100 levels");
  EXPECT_EQ(refusal_of_json(repeated(R"({"a":)", 100'000)), "'x.json' is nested deeper than 100 levels");
  EXPECT_TRUE(parse_json_or_discard(nested(100'000)).is_discarded());
  EXPECT_EQ(refusal_of_json("[" + repeated("[1],", 1000) + "1]"), "") << "side by side is not deep";
}

TEST(JsonReader, AKeyThatIsThereTwiceIsNoneOfTheTwo) {
  EXPECT_EQ(refusal_of_json(R"({"layers": 2, "layers": 3})"), "'x.json' names 'layers' twice in one object");
  EXPECT_EQ(refusal_of_json(R"({"a": {"b": 1}, "c": {"b": 1}, "b": [{"b": 1}, {"b": 2}]})"), "");
  EXPECT_EQ(refusal_of_json("{\"a\\u001b\": 1, \"a\\u001b\": 2}"), "'x.json' names 'a\\x1b' twice in one object");
}

TEST(JsonReader, SaysWhatIsWrongInOurWords) {
  EXPECT_EQ(refusal_of_json(""), "'x.json' is empty; it should be JSON");
  EXPECT_EQ(refusal_of_json(" \n"), "'x.json' is empty; it should be JSON");
  EXPECT_EQ(refusal_of_json("{\"a\": tru}"), "'x.json' is not JSON, near byte 10");
  EXPECT_EQ(refusal_of_json("[1e999]"), "'x.json' holds a number beyond a double's range");
  EXPECT_EQ(refusal_of_json("\"\xff\""), "'x.json' is not JSON, near byte 2");
}

// The header of a safetensors file has an object for each tensor, a list of rows one for each row.
// Eight times the objects take about eight times the processor's time; they took 64 times as much once. Time of this process, not of the
// clock on the wall: other tests run beside this one.
TEST(JsonReader, ALongListOfObjectsTakesTimeByItsLength) {
  const auto seconds = [](int many) {
    std::string object = "{", list = "[";
    for (int i = 0; i < many; ++i) {
      object += fmt::format("{}\"{}\":{{\"a\":[{}]}}", i ? "," : "", i, i);
      list += fmt::format("{}{{\"a\":[{}]}}", i ? "," : "", i);
    }
    object += "}", list += "]";
    const std::clock_t start = std::clock();
    EXPECT_EQ(parse_json(object, "x").size(), std::size_t(many));
    EXPECT_EQ(parse_json<nlohmann::ordered_json>(object, "x").size(), std::size_t(many));
    EXPECT_EQ(parse_json<nlohmann::ordered_json>(list, "x")[many - 1]["a"][0], many - 1);
    return double(std::clock() - start) / CLOCKS_PER_SEC;
  };
  seconds(1'000);  // the first parse allocates
  const double few = seconds(10'000), eight_times_as_many = seconds(80'000);
  EXPECT_LT(eight_times_as_many, 30 * few) << few << " s, then " << eight_times_as_many << " s";
}

}  // namespace
}  // namespace headroom
