// headroom forecast where something that only a card knows decides: experts, masks, draws, the order of threads and streams, times of kernels.
#include "tests/cli/forecast_program.h"

#ifdef HEADROOM_LIKE_TORCH
namespace headroom {
namespace {

TEST_F(Forecast, OtherExpertsMakeTheAnswerAnInterval) {
  const Json j = json("--device h100", "batch=8 routed", 0), plain = json("--device h100", "batch=8", 0);
  EXPECT_EQ(j["peak_allocated_bytes"], 64 * mib + 8 * 256 * mib);
  EXPECT_EQ(plain["uncertain"]["low_bytes"].get<std::int64_t>() - j["uncertain"]["low_bytes"].get<std::int64_t>(), 8 * 64 * mib);
  const Ended may = run(line("--device h100 --memory 2.8", "batch=8 routed"));  // between the ends
  EXPECT_EQ(may.code, 3) << may.err;
  EXPECT_TRUE(may.out.starts_with("May not fit on ")) << may.out;
  EXPECT_NE(may.out.find("the choice of experts"), std::string::npos) << may.out;
  EXPECT_NE(may.out.find("model.py:7 reads how many tokens go to each expert"), std::string::npos) << may.out;
}

// Boxes that a detector keeps are not experts.
TEST_F(Forecast, AMaskOfWhichACardKnowsHowMuchIsTrueIsSaidAsOne) {
  const Ended may = run(line("--device h100 --memory 2.8", "batch=8 routed masked"));
  EXPECT_EQ(may.code, 3) << may.err;
  EXPECT_NE(may.out.find("how much of a mask is true"), std::string::npos) << may.out;
  EXPECT_NE(may.out.find("model.py:7 reads which elements of a mask are true"), std::string::npos) << may.out;
  EXPECT_EQ(may.out.find("expert"), std::string::npos) << may.out;
  const Ended drawn = run(line("--device h100 --memory 2.8", "batch=8 routed drawn"));
  EXPECT_NE(drawn.out.find("model.py:7 reads a size that follows from what is drawn at random"), std::string::npos) << drawn.out;
  EXPECT_NE(drawn.out.find("with one draw"), std::string::npos) << drawn.out;
  EXPECT_NE(drawn.out.find("; a card draws still other numbers."), std::string::npos) << drawn.out;
  EXPECT_EQ(drawn.out.find("mask"), std::string::npos) << drawn.out;
}

TEST_F(Forecast, AProgramThatFailsWhereNothingOfItsMaskIsTrueKeepsItsUpperEnd) {
  const Json whole = json("--device h100", "batch=8 routed masked bounded", 0),
             some = json("--device h100", "batch=8 routed masked bounded some", 0);
  EXPECT_EQ(whole["peak_reserved_bytes"], some["peak_reserved_bytes"]);
  EXPECT_EQ(some["uncertain"]["high_bytes"], some["needed_bytes"]) << "with all of the mask this one needs less";
  EXPECT_GT(whole["uncertain"]["high_bytes"], some["uncertain"]["high_bytes"]);
  const Ended said = run(line("--device h100", "batch=8 routed masked bounded some stumbles"));
  EXPECT_NE(said.out.find(
                "run twice: with half of each such mask true, with every element of such masks true; the need is the interval of both."),
            std::string::npos)
      << said.out;
  EXPECT_NE(said.out.find("another run of the program, with no element of such masks true, failed (exit code 7"), std::string::npos)
      << said.out;
  EXPECT_NE(said.out.find("so it is not in the interval"), std::string::npos) << said.out;
  EXPECT_NE(some["uncertain"]["said"].dump().find("with no element of such masks true, failed"), std::string::npos)
      << some["uncertain"]["said"];
}

TEST_F(Forecast, AFailedRunWithOtherExpertsLeavesNoUpperEndAndIsSaid) {
  const Ended said = run(line("--device h100", "batch=8 routed bounded some"));
  EXPECT_TRUE(said.out.starts_with("Fits as far as is known")) << said.out;
  EXPECT_NE(said.out.find("a run with other values of the card failed"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("with as many tokens to each expert, failed (exit code 7"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("so nothing bounds the need from above"), std::string::npos) << said.out;
}

TEST_F(Forecast, WhatNothingBoundsHasNoUpperEndInAnyTable) {
  for (const auto& [words, is_open] : {std::pair{"batch=8 routed bounded", false}, std::pair{"batch=8 routed bounded some", true}}) {
    const Json j = json("--device h100", words, 0);
    EXPECT_EQ(j["uncertain"]["high_bytes"].is_null(), is_open) << words;
    EXPECT_EQ(j["ranks"][0]["high_bytes"].is_null(), is_open) << words;
  }
}

// Experts and masks: the need is that of masks that are nearly full, too. Other numbers are drawn in each of these runs.
TEST_F(Forecast, SeveralGuessesAreSaidAndRunTogether) {
  const Ended said = run(line("--device h100", "batch=8 routed masked both"));
  EXPECT_NE(said.out.find("model.py:6 reads how many tokens go to each expert, and model.py:7 reads which elements of a mask are true"),
            std::string::npos)
      << said.out;
  EXPECT_NE(said.out.find("run four times: with tokens to any experts and half of each such mask"), std::string::npos) << said.out;
  EXPECT_EQ(said.out.find("drawn"), std::string::npos) << said.out;
  const auto high = [&](const char* words) { return json("--device h100", words, 0)["uncertain"]["high_bytes"].get<std::int64_t>(); };
  EXPECT_EQ(high("batch=8 routed masked both bounded varied"), high("batch=8 routed masked bounded") + 8 * 32 * mib);
  const Ended failed = run(line("--device h100", "batch=8 routed masked both bounded some"));  // its experts' run is lost with the mask's
  EXPECT_TRUE(failed.out.starts_with("Fits as far as is known")) << failed.out;
}

// A program that keeps a copy of its weights whenever a loss is the least so far.
TEST_F(Forecast, NumbersThatAreComparedFallInOneRunAndRiseInTheNext) {
  const Ended said = run(line("--device h100", "batch=8 routed falling alone"));
  EXPECT_NE(said.out.find("model.py:8 compares numbers with one another"), std::string::npos) << said.out;
  EXPECT_NE(
      said.out.find("run three times: with the same number at each read, with each number smaller than the one before, with each number "
                    "larger than the one before; the need is the interval of all three."),
      std::string::npos)
      << said.out;
  const Json j = json("--device h100", "batch=8 bounded routed falling alone", 0), plain = json("--device h100", "batch=8", 0);
  EXPECT_EQ(j["uncertain"]["high_bytes"].get<std::int64_t>() - j["needed_bytes"].get<std::int64_t>(), 8 * 16 * mib);
  EXPECT_EQ(plain["uncertain"]["low_bytes"].get<std::int64_t>() - j["uncertain"]["low_bytes"].get<std::int64_t>(), 8 * 16 * mib);
  const auto range = [&](const char* words) {
    const Json both = json("--device h100", words, 0)["uncertain"];
    return std::pair(both["low_bytes"].get<std::int64_t>(), both["high_bytes"].get<std::int64_t>());
  };
  const auto [low_of_masks, high_of_masks] = range("batch=8 bounded routed masked varied");
  EXPECT_EQ(range("batch=8 bounded routed masked varied falling").second, high_of_masks + 8 * 16 * mib)
      << "they fall where masks are nearly full, too";
  EXPECT_EQ(range("batch=8 bounded routed masked falling").first, low_of_masks - 8 * 16 * mib) << "and rise where they are full";
}

// A program that takes such a number for a share (`log(1 - p)`) fails where it falls from 4, and is run with one that is a share.
TEST_F(Forecast, NumbersThatAreHeldAgainstAThresholdAreRunOnBothSidesOfIt) {
  const auto ends = [&](const char* words) {
    const Json j = json("--device h100", words, 0);
    return std::pair((j["uncertain"]["high_bytes"].get<std::int64_t>() - j["needed_bytes"].get<std::int64_t>()) / (8 * mib),
                     (j["needed_bytes"].get<std::int64_t>() - j["uncertain"]["low_bytes"].get<std::int64_t>()) / (8 * mib));
  };
  const auto plain = ends("batch=8");
  EXPECT_EQ(ends("batch=8 bounded routed held alone"), (std::pair(plain.first + 24, plain.second + 24)));
  EXPECT_EQ(ends("batch=8 bounded routed held unlikely falling share alone"), (std::pair(plain.first + 24, plain.second + 24)));
  EXPECT_EQ(ends("batch=8 bounded routed falling share alone"), (std::pair(plain.first + 16, plain.second + 16)));
  const Ended said = run(line("--device h100", "batch=8 bounded routed held unlikely falling share alone"));
  EXPECT_NE(said.out.find("model.py:8 compares numbers with one another, and model.py:9 holds numbers against a threshold"),
            std::string::npos)
      << said.out;
  EXPECT_NE(said.out.find(
                "run five times: with the same number at each read and 0.75 for each such number, with each number, below 1, smaller than "
                "the one before, with each number larger than the one before, with nearly 1 for each such number, with -1 and less"),
            std::string::npos)
      << said.out;
  EXPECT_EQ(said.out.find("failed"), std::string::npos) << said.out;
}

TEST_F(Forecast, ValuesThatMayDifferAreRunOnceMore) {
  const Ended said = run(line("--device h100", "batch=8 routed differing"));
  EXPECT_NE(said.out.find("run twice: with values that all differ, with values that are all the same; the need is the interval of both."),
            std::string::npos)
      << said.out;
}

// Blocks of other sizes for each mask may reserve more than the largest of one size.
TEST_F(Forecast, AMaskIsAlsoRunNearlyFull) {
  const auto high = [&](const char* words) { return json("--device h100", words, 0)["uncertain"]["high_bytes"].get<std::int64_t>(); };
  const std::int64_t whole = high("batch=8 routed masked bounded"), experts = high("batch=8 routed bounded");
  EXPECT_EQ(high("batch=8 routed masked bounded varied"), whole + 8 * 32 * mib);
  EXPECT_EQ(high("batch=8 routed bounded varied"), experts) << "experts are not run so";
  EXPECT_EQ(high("batch=8 routed masked bounded stumbles"), whole) << "where that run fails, the others decide";
  EXPECT_EQ(high("batch=8 routed masked bounded varied emptied"), whole + 8 * 32 * mib)
      << "where all of it fails, nearly all of it is the end";
  EXPECT_TRUE(json("--device h100", "batch=8 routed masked bounded stumbles emptied", 0)["uncertain"]["high_bytes"].is_null());
  const Ended said = run(line("--device h100", "batch=8 routed masked"));
  EXPECT_NE(said.out.find("run four times: with half of each such mask"), std::string::npos) << said.out;
}

// A card that is slower than its description gives memory back later.
TEST_F(Forecast, MemoryThatASecondStreamUsesMayComeBackAtOnceOrLate) {
  const Json j = json("--device h100", "batch=8 late", 0), plain = json("--device h100", "batch=8", 0);
  EXPECT_EQ(j["peak_allocated_bytes"], plain["peak_allocated_bytes"]);
  EXPECT_EQ(plain["uncertain"]["low_bytes"].get<std::int64_t>() - j["uncertain"]["low_bytes"].get<std::int64_t>(), 8 * 64 * mib);
  const Ended may = run(line("--device h100 --memory 2.8", "batch=8 late"));  // between the ends
  EXPECT_EQ(may.code, 3) << may.err;
  EXPECT_TRUE(may.out.starts_with("May not fit on ")) << may.out;
  EXPECT_NE(may.out.find("when a second stream is done with memory"), std::string::npos) << may.out;
  EXPECT_NE(may.out.find("Memory of one stream that another used"), std::string::npos) << may.out;
}

TEST_F(Forecast, WhatADriversPoolKeepsHasNoUpperEnd) {
  const Json j = json("--device h100", "batch=8 pool", 0);
  EXPECT_EQ(j["peak_reserved_bytes"], 64 * mib + 8 * 256 * mib);
  EXPECT_TRUE(j["uncertain"]["high_bytes"].is_null());
  const std::string pool = run(line("--device h100", "batch=8 pool")).out;
  EXPECT_TRUE(pool.starts_with("Fits as far as is known on NVIDIA H100 SXM: it needs at least ")) << pool;
}

TEST_F(Forecast, KernelsThatACardWouldChooseByTheirTimesLeaveNoUpperBound) {
  const Json tuned = json("--device h100", "batch=1 tunes", 0);
  EXPECT_EQ(tuned["uncertain"]["high_bytes"], nullptr) << "what measuring them leaves reserved is not known";
  EXPECT_EQ(tuned["uncertain"]["said"][0]["text"], "kernels would be chosen by their times");
  const Ended e = run(line("--device h100", "batch=1 tunes"));
  EXPECT_NE(e.out.find("measuring kernels to choose among them leaves memory reserved"), std::string::npos) << e.out;
  EXPECT_NE(json("--device h100", "batch=1", 0)["uncertain"]["high_bytes"], nullptr);
}

TEST_F(Forecast, WhatValuesOrAnOrderOfThreadsDecideHasNoUpperBound) {
  const Json values = json("--device h100", "batch=1 open", 0), order = json("--device h100", "batch=1 threads", 0);
  const Json plain = json("--device h100", "batch=1", 0);
  for (const Json& answer : {values, order}) {
    EXPECT_EQ(answer["uncertain"]["high_bytes"], nullptr);
    EXPECT_EQ(answer["uncertain"]["allocated_high_bytes"], nullptr);
    EXPECT_EQ(answer["steps_done"][0]["reserved_high_bytes"], nullptr);
  }
  EXPECT_EQ(values["uncertain"]["said"][0]["text"], "a value decides how much is kept");
  const auto low = [](const Json& answer) { return answer["uncertain"]["low_bytes"].get<std::int64_t>(); };
  EXPECT_EQ(low(values), low(plain)) << "it may need more, not less";
  const auto reserved = plain["peak_reserved_bytes"].get<std::int64_t>(), allocated = plain["peak_allocated_bytes"].get<std::int64_t>();
  EXPECT_EQ(low(plain) - low(order), reserved - allocated / 2) << "one of two threads alone";
  const Ended e = run(line("--device h100", "batch=1 open"));
  EXPECT_NE(e.out.find("it needs at least"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("a value decides how much is kept"), std::string::npos) << e.out;
}

}  // namespace
}  // namespace headroom
#endif
