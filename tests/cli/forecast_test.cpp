// headroom forecast from the outside: programs of our own that call what PyTorch's allocator calls.
#include <set>
#include <thread>

#include "gpu/device.h"
#include "studies/forecast/check.h"
#include "studies/forecast/tries.h"
#include "tests/cli/forecast_program.h"

#ifdef HEADROOM_LIKE_TORCH
namespace headroom {
namespace {

TEST_F(Forecast, AProgramThatFitsIsSaidWithItsBytes) {
  const Json j = json("--device h100", "batch=8 steps=3", 0);
  EXPECT_EQ(j["fits"], true);
  EXPECT_EQ(j["peak_allocated_bytes"], 64 * mib + 8 * 256 * mib);
  EXPECT_EQ(j["peak_reserved_bytes"], 64 * mib + 8 * 256 * mib);
  EXPECT_EQ(j["needed_bytes"].get<std::int64_t>(), j["peak_reserved_bytes"].get<std::int64_t>() + j["beside_bytes"].get<std::int64_t>());
  EXPECT_TRUE(j["ms"].is_null());
  EXPECT_FALSE(j["time_why"].get<std::string>().empty()) << "it launches nothing";
  EXPECT_EQ(j["device"], "NVIDIA H100 SXM");
  EXPECT_EQ(j["ranks"].size(), 1u);
  EXPECT_EQ(j["steps"], 3);
  std::set<std::string> phases;
  for (const Json& p : j["phases"]) phases.insert(p["phase"]);
  EXPECT_TRUE(phases.contains("forward")) << j["phases"].dump();
  EXPECT_TRUE(phases.contains("backward")) << j["phases"].dump();
  EXPECT_FALSE(j["at_peak"].empty());
  EXPECT_TRUE(j["uncertain"].contains("values"));
  EXPECT_TRUE(j["uncertain"].contains("allocated_high_bytes"));
  EXPECT_TRUE(j["uncertain"].contains("functions"));
}

TEST_F(Forecast, TheVerdictIsTheFirstLineAndTheProgramsOutputIsBeside) {
  const Ended e = run(line("--device h100", "batch=8"));
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_TRUE(e.out.starts_with("Fits on NVIDIA H100 SXM: it needs ")) << e.out;
  EXPECT_EQ(e.out.find("the program's own output"), std::string::npos);
  EXPECT_NE(e.err.find("the program's own output"), std::string::npos) << e.err;
  EXPECT_NE(e.err.find("run 1 in "), std::string::npos) << e.err;
}

TEST_F(Forecast, WhatDoesNotFitIsRunAgainToSayWhatItNeeds) {
  const Json j = json("--device rtx4090", "batch=100", 3);
  EXPECT_EQ(j["fits"], false);
  EXPECT_EQ(j["status"], "oom");
  EXPECT_EQ(j["peak_allocated_bytes"], 64 * mib + 100 * 256 * mib) << "with unlimited memory";
  EXPECT_GT(j["needed_bytes"], j["memory_bytes"]);
  EXPECT_NE(j["why"].get<std::string>().find("step 1, forward"), std::string::npos) << j["why"];
}

TEST_F(Forecast, WhatRunsOutSilentlyDoesNotFit) {
  EXPECT_EQ(json("--device rtx4090", "batch=100 silent", 3)["status"], "oom");
  EXPECT_EQ(json("--device rtx4090", "batch=2 silent fails", 1)["status"], "failed");
  const Ended other = run(line("--device rtx4090", "batch=128 catch silent fails"));  // it caught that, and failed of something else
  EXPECT_EQ(other.code, 1) << other.out;
  EXPECT_NE(other.out.find("ValueError"), std::string::npos) << other.out;
}

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

TEST_F(Forecast, TheLimitIsTheOneThatWasAsked) {
  const Json small = json("--device h100 --memory 3", "batch=10", 3), large = json("--device h100 --memory 5", "batch=10", 0);
  EXPECT_EQ(small["memory_bytes"], 3 * gib);
  EXPECT_EQ(small["peak_allocated_bytes"], large["peak_allocated_bytes"]);
}

TEST_F(Forecast, NoLimitIsAboveTheCard) {
  const std::string out = run(line("--device 4090 --memory 24", "batch=1")).out;
  EXPECT_NE(out.find(" of 23.6 GiB "), std::string::npos) << out;
  EXPECT_NE(out.find("The limit is 23.6 GiB, all of the card; --memory asks for more, 24.0 GiB."), std::string::npos) << out;
  EXPECT_EQ(run(line("--device 4090 --memory 20", "batch=1")).out.find("The limit is"), std::string::npos);
}

TEST_F(Forecast, AProgramThatHalvesItsBatchAndStillFailsNeedsItsLastBatch) {
  const Json j = json("--device h100 --memory 3", "batch=64 catch least=16", 3);
  EXPECT_EQ(j["status"], "oom");
  EXPECT_EQ(j["peak_allocated_bytes"], 64 * mib + 16 * 256 * mib);
  const Json once = json("--device h100 --memory 3", "batch=64", 3);
  EXPECT_EQ(once["peak_allocated_bytes"], 64 * mib + 64 * 256 * mib);
}

TEST_F(Forecast, AProgramThatHalvesItsBatchWorksAsOnACard) {
  const Json j = json("--device rtx4090", "batch=128 catch", 0);
  EXPECT_EQ(j["fits"], true);
  EXPECT_EQ(j["peak_allocated_bytes"], 64 * mib + 64 * 256 * mib);
}

TEST_F(Forecast, TheLargestBatchIsFound) {
  const Ended e = run("forecast --device h100 --memory 5 --db " + db_ + " --largest batch=1..256 -- " HEADROOM_LIKE_TORCH " batch={batch}");
  EXPECT_EQ(e.code, 0) << e.err;
  const std::int64_t beside = json("--device h100", "batch=1", 0)["beside_bytes"];
  const std::int64_t most = (5 * gib - beside - 64 * mib) / (256 * mib);
  EXPECT_NE(e.out.find("The largest batch that fits on NVIDIA H100 SXM is " + std::to_string(most)), std::string::npos) << e.out;
}

TEST_F(Forecast, ASweepHasARowForEachValue) {
  const Ended e = run("forecast --format json --device h100 --memory 5 --db " + db_ +
                      " --sweep batch=1,4,100 -- " HEADROOM_LIKE_TORCH " batch={batch}");
  EXPECT_EQ(e.code, 0) << e.err;
  const Json rows = Json::parse(e.out)["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1]["setting"], "batch=4");
  EXPECT_EQ(rows[1]["fits"], true);
  EXPECT_EQ(rows[2]["status"], "oom");
  EXPECT_EQ(rows[2]["peak_allocated_bytes"], 64 * mib + 100 * 256 * mib);
}

TEST_F(Forecast, AProgramThatFailsOfItselfIsNamedWithItsCode) {
  const Ended e = run(line("--device h100", "batch=2 fails"));
  EXPECT_EQ(e.code, 1);
  EXPECT_NE(e.out.find("exit code 7"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("the program's own mistake"), std::string::npos) << e.out;
  EXPECT_NE(e.err.find("the program's own mistake"), std::string::npos) << e.err;
  const Ended killed = run(line("--device h100", "batch=2 killed"));
  EXPECT_EQ(killed.code, 1);
  EXPECT_NE(killed.out.find("Killed"), std::string::npos) << killed.out;
  EXPECT_NE(killed.out.find("NVIDIA H100"), std::string::npos) << "what is known until then is kept";
}

TEST_F(Forecast, ARuntimeOfItsOwnIsNamedBesideTheBytes) {
  const Json j = json("--device h100", "batch=8 own-runtime", 0);
  EXPECT_TRUE(j["uncertain"]["high_bytes"].is_null());
  ASSERT_EQ(j["uncertain"]["said"].size(), 1u) << j["uncertain"]["said"];
  EXPECT_NE(j["uncertain"]["said"][0]["text"].get<std::string>().find("like_torch has a CUDA runtime of its own"), std::string::npos);
  const std::string out = run(line("--device h100", "batch=8 own-runtime")).out;
  EXPECT_TRUE(out.starts_with("Fits as far as is known on NVIDIA H100 SXM: it needs at least ")) << out;
  EXPECT_NE(out.find("what a runtime of its own would take is not counted"), std::string::npos) << out;
}

TEST_F(Forecast, AFractionThatTheProgramSetsIsNamedWithItsLine) {
  const Json small = json("--device h100 --memory 16", "batch=8 fraction", 3),
             fits = json("--device h100 --memory 64", "batch=8 fraction", 0);
  EXPECT_EQ(small["peak_allocated_bytes"], 64 * mib + 8 * 256 * mib) << "without the limit";
  EXPECT_EQ(small["allowed_bytes"], gib);
  EXPECT_EQ(small["fits"], false);
  EXPECT_EQ(small["ranks"][0]["fits"], false);
  EXPECT_EQ(small["status"], "oom");
  EXPECT_NE(small["why"].get<std::string>().find("train.py:3 lets PyTorch reserve 1.00 GiB (a fraction of 0.0625)"), std::string::npos);
  EXPECT_EQ(fits["allowed_bytes"], 4 * gib);
  EXPECT_EQ(fits["fits"], true);
  EXPECT_EQ(fits["uncertain"]["said"][0]["what"], "fraction");
  EXPECT_TRUE(json("--device h100", "batch=8", 0)["allowed_bytes"].is_null());
  const std::string out = run(line("--device h100 --memory 16", "batch=8 fraction")).out;
  EXPECT_TRUE(
      out.starts_with("Does not fit on NVIDIA H100 SXM: train.py:3 lets PyTorch reserve 1.00 GiB (a fraction of 0.0625); it needs "))
      << out;
  const std::string both = run(line("--device h100 --memory 2", "batch=8 fraction")).out;
  EXPECT_NE(both.substr(0, both.find('\n')).find("of 2.00 GiB, 2.06 GiB of it PyTorch's"), std::string::npos) << both;
  EXPECT_NE(both.substr(0, both.find('\n')).find(" too much"), std::string::npos) << both;
}

TEST_F(Forecast, PeaksOfProcessesThatShareACardAreThoseOfOne) {
  const Json j = json("--device h100", "batch=1 shares", 0);
  EXPECT_EQ(j["ranks"].size(), 2u);
  EXPECT_EQ(j["peak_reserved_bytes"], 1024 * mib + 64 * mib + 256 * mib);
  EXPECT_EQ(j["peak_allocated_bytes"], 512 * mib) << "of the same process; the other has 900 MiB at once";
  EXPECT_EQ(j["fragmented_bytes"], j["peak_reserved_bytes"].get<std::int64_t>() - 512 * mib);
  EXPECT_GE(j["beside_bytes"].get<std::int64_t>(), 900 * mib);
  EXPECT_NE(run(line("--device h100", "batch=1 shares")).out.find("(the peaks are those of process "), std::string::npos);
}

TEST_F(Forecast, AProcessThatOnlyOpensAnothersMemoryHasAContext) {
  const auto beside = [&](const char* words) { return json("--device h100", words, 0)["beside_bytes"].get<std::int64_t>(); };
  const std::int64_t alone = beside("batch=1");
  EXPECT_EQ(beside("batch=1 opened"), 2 * alone) << "while the other one grows";
  EXPECT_EQ(beside("batch=1 opened-late"), 2 * alone) << "when it has all that it needs";
}

TEST_F(Forecast, WhatADriversPoolKeepsHasNoUpperEnd) {
  const Json j = json("--device h100", "batch=8 pool", 0);
  EXPECT_EQ(j["peak_reserved_bytes"], 64 * mib + 8 * 256 * mib);
  EXPECT_TRUE(j["uncertain"]["high_bytes"].is_null());
  const std::string pool = run(line("--device h100", "batch=8 pool")).out;
  EXPECT_TRUE(pool.starts_with("Fits as far as is known on NVIDIA H100 SXM: it needs at least ")) << pool;
}

TEST_F(Forecast, AProgramThatHidesItsCardsIsToldSo) {
  const Ended e = run(line("--device h100", "hides"));
  EXPECT_EQ(e.code, 1);
  EXPECT_NE(e.err.find("sets CUDA_VISIBLE_DEVICES itself, so that it sees no card"), std::string::npos) << e.err;
}

// The card had most when the small process took its part, so only that one's record has the sum.
TEST_F(Forecast, ThePeaksAreThoseOfTheProcessThatReservesMost) {
  const Json j = json("--device h100", "batch=4 shares-late", 0), alone = json("--device h100", "batch=4", 0);
  EXPECT_EQ(j["peak_reserved_bytes"], alone["peak_reserved_bytes"]);
  EXPECT_GT(j["needed_bytes"].get<std::int64_t>(), alone["needed_bytes"].get<std::int64_t>() + 20 * mib) << "and a context";
}

TEST_F(Forecast, LeversAreRunAndRankedWithTheCodeToWrite) {
  const Json j = json("--try --device rtx4090", "batch=96 levers", 3);
  const Json& rows = j["tries"];
  ASSERT_GE(rows.size(), 8u);
  EXPECT_EQ(rows[0]["change"], "expandable_segments:True + activation checkpointing");
  EXPECT_EQ(rows[0]["peak_allocated_bytes"], 64 * mib + 96 * 96 * mib);
  EXPECT_EQ(rows[1]["change"], "activation checkpointing");
  EXPECT_EQ(rows[1]["saves_bytes"], 96 * 128 * mib);
  EXPECT_EQ(rows[2]["change"], "expandable_segments:True");
  EXPECT_EQ(rows[2]["code"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  EXPECT_EQ(rows[2]["fits"], true);
  for (const Json& row : rows)
    if (row["change"] == "fused AdamW" || row["change"] == "exact attention without N² (sdpa)") {
      EXPECT_EQ(row["status"], "refused") << row.dump();
      EXPECT_FALSE(row["why"].get<std::string>().empty());
    }
  const Ended e = run(line("--try --device rtx4090", "batch=96 levers"));
  EXPECT_EQ(e.code, 3) << e.err;
  EXPECT_NE(e.out.find("It fits with expandable_segments:True: write PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"), std::string::npos)
      << e.out;
  EXPECT_NE(e.out.find("activation checkpointing: model.gradient_checkpointing_enable()"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("there is no attention)"), std::string::npos) << "of a reason of several lines the first: " << e.out;
}

// The observer adds what is tried to the settings that a program, or its user, has; a variable of ours would take their place.
TEST_F(Forecast, ASettingThatIsTriedLeavesTheUsersOwn) {
  using Words = std::vector<std::string>;
  const auto with = [](const char* variable) {
    setenv(variable, "garbage_collection_threshold:0.5", 1);
    const Words words = studies::with_allocator("max_split_size_mb:64");
    unsetenv(variable);
    return words;
  };
  EXPECT_EQ(with("PYTORCH_ALLOC_CONF"), Words{"HEADROOM_DRY_ALLOCATOR=max_split_size_mb:64"});
  EXPECT_EQ(with("PYTORCH_CUDA_ALLOC_CONF"), Words{"HEADROOM_DRY_ALLOCATOR=max_split_size_mb:64"});
  EXPECT_EQ(studies::with_allocator("max_split_size_mb:64"),
            (Words{"HEADROOM_DRY_ALLOCATOR=max_split_size_mb:64", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64"}));
}

TEST_F(Forecast, WhatTheObserverSaysIsInTheAnswerAndItsJson) {
  const Json j = json("--device h100", "batch=1 notes", 0);
  ASSERT_EQ(j["uncertain"]["said"].size(), 1u);
  EXPECT_EQ(j["uncertain"]["said"][0]["what"], "note");
  EXPECT_EQ(j["uncertain"]["said"][0]["text"], "times were not known");
  EXPECT_NE(run(line("--device h100", "batch=1 notes")).out.find("note: times were not known."), std::string::npos);
}

TEST_F(Forecast, WhatWasNotRunIsSaidWhereItEndedTheProgram) {
  const std::string rest =
      "The forecast ended the program after 2 steps: the peaks of two optimizer steps agree. What comes later was not run";
  const Json j = json("--device h100", "batch=1 steps=9 ended", 0);
  ASSERT_EQ(j["uncertain"]["said"].size(), 1u);
  EXPECT_EQ(j["uncertain"]["said"][0]["what"], "ended");
  EXPECT_TRUE(j["uncertain"]["said"][0]["text"].get<std::string>().starts_with(rest)) << j["uncertain"]["said"];
  const std::string out = run(line("--device h100", "batch=1 steps=9 ended")).out;
  EXPECT_EQ(out.find(rest), out.rfind(rest));
  EXPECT_NE(out.find(rest), std::string::npos) << out;
  EXPECT_TRUE(out.starts_with("Fits as far as 2 steps show on NVIDIA H100 SXM: it needs ")) << out;
  EXPECT_EQ(j["to_its_end"], false);
  const std::string one = run(line("--device h100 --steps 1", "batch=1 steps=9 ended-at-once")).out;
  EXPECT_TRUE(one.starts_with("Fits as far as one step shows on NVIDIA H100 SXM: it needs ")) << one;
  const Json whole = json("--device h100", "batch=1 steps=9", 0);
  EXPECT_TRUE(whole["uncertain"]["said"].empty()) << "it ran to its end";
  EXPECT_EQ(whole["to_its_end"], true);
}

TEST_F(Forecast, WhatComesSoonAfterEnoughStepsIsSeen) {
  const Json whole = json("--device h100", "batch=1 steps=4 settles evaluates", 0);
  EXPECT_EQ(whole["to_its_end"], true);
  EXPECT_EQ(whole["peak_allocated_bytes"], 64 * mib + 2 * 256 * mib);
  const Json out = json("--device h100", "batch=200 steps=4 settles evaluates", 3);
  EXPECT_EQ(out["status"], "oom") << "an evaluation that runs out";
  EXPECT_EQ(out["peak_allocated_bytes"], 64 * mib + 400 * 256 * mib);
  const Json code = json("--device h100", "batch=1 steps=4 settles exits", 0);
  EXPECT_EQ(code["to_its_end"], false);
  ASSERT_EQ(code["uncertain"]["said"].size(), 1u) << "the forecast did not end it";
  EXPECT_EQ(code["uncertain"]["said"][0]["text"], "after its steps agreed, the program ended itself (exit code 5)");
  EXPECT_EQ(json("--device h100", "batch=1 steps=4 exits", 1)["status"], "failed") << "before that";
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

TEST_F(Forecast, AProcessThatRunsOutBesideOneThatWasEndedDoesNotFit) {
  EXPECT_EQ(json("--device rtx4090", "batch=1 neighbour", 3)["status"], "oom");
  EXPECT_EQ(json("--device h200", "batch=1 neighbour", 0)["status"], "ok");
}

TEST_F(Forecast, WhatWasTriedIsNoLongerAdvised) {
  const std::string advice = "--try measures which allocator setting avoids it";
  const Ended without = run(line("--device h100", "batch=1 spare")), with = run(line("--try --device h100", "batch=1 spare"));
  EXPECT_NE(without.out.find(advice), std::string::npos) << without.out;
  EXPECT_NE(with.out.find("Reserved and never allocated at once: "), std::string::npos) << with.out;
  EXPECT_EQ(with.out.find(advice), std::string::npos) << with.out;
}

TEST_F(Forecast, OfSeveralHostsOneIsRun) {
  using Words = std::vector<std::string>;
  const auto one =
      studies::one_host_of({"torchrun", "--nnodes=2", "--node-rank", "1", "--nproc-per-node", "8", "--master-addr", "far", "train.py"});
  EXPECT_EQ(one.hosts, 2);
  EXPECT_EQ(one.program,
            (Words{"torchrun", "--nnodes=1", "--node-rank", "0", "--nproc-per-node", "8", "--master-addr", "localhost", "train.py"}));
  const auto elastic =
      studies::one_host_of({"torchrun", "--nnodes", "1:4", "--rdzv-backend", "c10d", "--rdzv-endpoint=far:29400", "train.py"});
  EXPECT_EQ(elastic.hosts, 4);
  EXPECT_EQ(elastic.program, (Words{"torchrun", "--nnodes", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint=localhost:0", "train.py"}));
  for (const Words& same : {Words{"torchrun", "--nnodes", "1", "--node-rank", "0", "t.py"}, Words{"python3", "t.py", "--nnodes", "many"}}) {
    EXPECT_EQ(studies::one_host_of(same).hosts, 1);
    EXPECT_EQ(studies::one_host_of(same).program, same);
  }
}

TEST_F(Forecast, HalfTheBatchIsALeverWhereTheCommandNamesBoth) {
  const auto last = [](const std::vector<std::string>& program) { return studies::levers_for(program).back(); };
  const studies::Lever half = last({"python3", "train.py", "--batch", "8", "--accumulate", "2"});
  EXPECT_EQ(half.program, (std::vector<std::string>{"python3", "train.py", "--batch", "4", "--accumulate", "4"}));
  EXPECT_EQ(half.code, "--batch 4 --accumulate 4");
  EXPECT_EQ(last({"train", "--batch_size=6", "--grad_accum", "1"}).code, "--batch_size=3 --grad_accum 2");
  for (const char* batch : {"7", "1", "eight"})
    EXPECT_TRUE(last({"train", "--batch", batch, "--accumulate", "2"}).program.empty()) << batch;
  EXPECT_TRUE(last({"python3", "train.py", "--batch", "8"}).program.empty());
}

TEST_F(Forecast, MemoryOfTheHostIsCountedAndSaid) {
  const Json j = json("--device h100", "batch=1 pins", 0), without = json("--device h100", "batch=1", 0);
  EXPECT_EQ(j["pinned_bytes"], 48 * mib);
  EXPECT_EQ(j["managed_bytes"], 16 * mib);
  EXPECT_EQ(j["peak_reserved_bytes"], without["peak_reserved_bytes"]);
  EXPECT_TRUE(without["pinned_bytes"].is_null());
  const Ended e = run(line("--device h100", "batch=1 pins"));
  EXPECT_NE(e.out.find("Pinned memory of the host: 48.0 MiB"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("Unified memory: 16.0 MiB"), std::string::npos) << e.out;
}

TEST_F(Forecast, WhatIsNoProgramIsSaidWithWhatToWrite) {
  put("train.py", "import torch\n");
  put("run.sh", "true\n");
  put("tool", "true\n");
  put("gone", "#!/no/such/interpreter\n");
  fs::permissions(folder_ / "gone", fs::perms::owner_all);
  put("my notebook.ipynb", "{\"cells\": [], \"metadata\": null}");
  const auto said = [&](const std::string& program, const std::string& words) {
    shell_refused("$H forecast --device h100 -- " + program, 2, "' cannot be started: " + words);
  };
  said("train.py --batch 8", "it is a Python file; write -- python3 train.py --batch 8");
  said("./train.py", "it is a Python file; write -- python3 ./train.py");
  said("./run.sh", "it is a script of a shell; write -- sh ./run.sh");
  said("./tool", "it may not be executed; chmod +x ./tool allows that");
  said("./gone", "what its first line names to run it is not there");
  said("'python3 train.py --batch 8'", "it is one word, with blanks in it; leave the quotes out: -- python3 train.py --batch 8");
  said("CUDA_VISIBLE_DEVICES=0 python3 train.py", "it sets a variable; write -- env CUDA_VISIBLE_DEVICES=0 python3 train.py");
  said("no_such_launcher train.py", "no folder of PATH has it; activate the environment that has it, or give its path");
  said("/no/such/program", "there is no such file");
  said("/usr", "Permission denied");
  const std::string convert =
      "jupyter nbconvert --to script 'my notebook.ipynb' writes 'my notebook.py', and then -- python3 'my notebook.py'";
  said("'my notebook.ipynb'", "it is a notebook; " + convert);
  const Ended notebook = shell("$H forecast --device h100 -- python3 'my notebook.ipynb'");
  EXPECT_EQ(notebook.code, 2) << notebook.err;
  EXPECT_NE(notebook.err.find("Python cannot run 'my notebook.ipynb': it is a notebook; " + convert), std::string::npos) << notebook.err;
}

TEST_F(Forecast, WordsWithBlanksAreShownInQuotes) {
  const Json j = json("--device h100", "batch=1 'nothing but a word'", 0);
  EXPECT_EQ(j["program"], std::string(HEADROOM_LIKE_TORCH) + " batch=1 'nothing but a word'");
}

// Words that tell a launcher to start two: contexts of ranks have NCCL's buffers, those of processes that only share a card have not.
TEST_F(Forecast, ProcessesOfALauncherThatAreNoRanksHaveSmallContexts) {
  const Json alone = json("--device h100", "shares", 0), launched = json("--device h100", "shares --nproc-per-node 2", 0);
  EXPECT_EQ(launched["needed_bytes"], alone["needed_bytes"]);
  EXPECT_EQ(launched["beside_bytes"], alone["beside_bytes"]);
  const std::string two = "The launcher starts 2 processes, and all use card 0";
  EXPECT_NE(run("forecast --device h100 --db " + db_ + " -- " HEADROOM_LIKE_TORCH " shares --nproc-per-node 2").out.find(two),
            std::string::npos);
  EXPECT_EQ(run("forecast --device h100 --db " + db_ + " -- " HEADROOM_LIKE_TORCH " shares").out.find(two), std::string::npos);
}

TEST_F(Forecast, ARulerIsNoReason) {
  put("rule.sh", "echo 'what is wrong'; echo -----; exit 4\n");
  const Ended e = shell("$H forecast --device h100 -- sh rule.sh");
  EXPECT_NE(e.err.find("'rule.sh' ended before it used a card, with exit code 4: what is wrong\n"), std::string::npos) << e.err;
}

TEST_F(Forecast, NoCardInsideIsExplained) {
  put("none.sh", "echo 'RuntimeError: No CUDA GPUs are available'; exit 1\n");
  const Ended e = shell("$H forecast --device h100 -- sh none.sh");
  EXPECT_NE(e.err.find("No CUDA GPUs are available; something sets CUDA_VISIBLE_DEVICES for it, so that it sees no card"),
            std::string::npos)
      << e.err;
}

TEST_F(Forecast, WrongUseIsOneLine) {
  refused("forecast --device h100", 2, "give -- and the program");
  refused("forecast --device h100 -- /no/such/program", 2, "cannot be started");
  refused("forecast --device cpu -- true", 2, "for a GPU");
  refused("forecast --device h999 -- true", 2, "h999");
  refused("forecast --largest batch=1..8 -- true --batch 3", 2, "the command has no {batch}");
  refused("forecast --largest batch=8..1 -- true {batch}", 2, "the smaller number comes first");
  refused("forecast --sweep len -- true {len}", 2, "no name with values");
  if (cuda_device_count() == 0) refused("forecast --check --device h100 -- true", 1, "there is none in this machine");
  refused("forecast --sweep b=1 --largest b=1..2 -- true {b}", 2, "both vary b");
}

TEST_F(Forecast, AProgramWithoutACardIsSaid) {
  const Ended e = run("forecast --device h100 --db " + db_ + " -- true");
  EXPECT_EQ(e.code, 1);
  EXPECT_NE(e.err.find("allocated nothing on a card"), std::string::npos) << e.err;
  const Ended early = run("forecast --device h100 --db " + db_ + " -- sh -c 'echo no such file >&2; exit 5'");
  EXPECT_EQ(early.code, 1);
  EXPECT_NE(early.err.find("exit code 5: no such file"), std::string::npos) << early.err;
  put("train.sh", "echo \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n");
  const Ended none = run("forecast --device h100 --db " + db_ + " -- sh " + (folder_ / "train.sh").string());
  EXPECT_NE(none.err.find("name the Python that has PyTorch"), std::string::npos) << none.err;
  EXPECT_NE(none.err.find("train.sh' ended before it used a card"), std::string::npos) << none.err;
}

TEST_F(Forecast, APyTorchWithoutCudaIsToldWhatToInstall) {
  if (std::system("python3 -c pass > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  fs::create_directories(folder_ / "torch");
  put("torch/__init__.py", "from . import version\n__version__ = '2.9.0+cpu'\n");
  put("torch/version.py", "cuda = None\n");
  put("train.py", "import torch\nprint('trains for hours on the CPU')\n");
  const Ended e = shell("PYTHONPATH=" + folder_.string() + " $H forecast --device h100 --db " + db_ + " -- python3 train.py");
  EXPECT_EQ(e.code, 1);
  EXPECT_TRUE(e.out.empty()) << e.out;
  EXPECT_NE(e.err.find("its PyTorch 2.9.0+cpu is a build without CUDA"), std::string::npos) << e.err;
  EXPECT_NE(e.err.find("pip install torch --index-url https://download.pytorch.org/whl/cu"), std::string::npos) << e.err;
  EXPECT_EQ(e.err.find("trains for hours"), std::string::npos) << e.err;
  put("train.sh", "export PYTHONPATH=" + folder_.string() + "\nexec python3 train.py\n");  // the observer is there all the same
  EXPECT_NE(shell("$H forecast --device h100 --db " + db_ + " -- sh train.sh").err.find("its PyTorch 2.9.0+cpu is a build without CUDA"),
            std::string::npos);
}

TEST_F(Forecast, AFolderForTemporaryFilesThatIsNoneIsNamed) {
  const auto with = [&](const std::string& tmp) {
    return shell("TMPDIR=" + tmp + " $H forecast --device h100 --db " + db_ + " -- " HEADROOM_LIKE_TORCH " batch=1");
  };
  put("file", "");
  for (const std::string& tmp : {std::string("/no/such/folder"), (folder_ / "file").string()}) {
    const Ended e = with(tmp);
    EXPECT_EQ(e.code, 1);
    EXPECT_NE(e.err.find("TMPDIR is '" + tmp + "', which is no folder"), std::string::npos) << e.err;
  }
  EXPECT_NE(with("/proc").err.find("no folder can be made in '/proc'"), std::string::npos);
}

// The limit of a file's size stands for a disk that is full.
TEST_F(Forecast, ASettingWithoutAnAnswerHasNoBytes) {
  const std::string sweep = "forecast --db " + db_ + " --sweep n=0,1 -- sh -c 'exit {n}'";
  const Ended e = run(sweep), j = run("forecast --format json --db " + db_ + " --sweep n=0,1 -- sh -c 'exit {n}'");
  EXPECT_EQ(e.code, 1) << e.out;
  EXPECT_TRUE(e.out.starts_with("0 of 2 settings fit on NVIDIA H200; 2 gave no answer.")) << e.out;
  EXPECT_EQ(e.out.find("0 B"), std::string::npos) << e.out;
  for (const Json& rows : {Json::parse(j.out)["rows"], Json::parse(run("results 1 --format json --db " + db_).out)["rows"]}) {
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_TRUE(rows[0]["needed_bytes"].is_null() && rows[1]["peak_allocated_bytes"].is_null()) << rows;
  }
  EXPECT_EQ(run("report 1 --db " + db_).code, 0);
}

TEST_F(Forecast, ARecordThatHadNoRoomIsNoAnswer) {
  const Ended e =
      run("forecast --device h100 --db " + db_ + " -- sh -c 'trap \"\" XFSZ; ulimit -f 100; exec " HEADROOM_LIKE_TORCH " batch=1'");
  EXPECT_EQ(e.code, 1) << e.out;
  EXPECT_NE(e.err.find("the record of the run needs more room than there is in"), std::string::npos) << e.err;
}

TEST_F(Forecast, OneOfAThingIsNotSaidAsSeveral) {
  const Ended e = run("forecast --device h100 --db " + db_ + " --sweep batch=1 -- " HEADROOM_LIKE_TORCH " batch={batch}");
  EXPECT_TRUE(e.out.starts_with("1 of 1 setting fits on NVIDIA H100 SXM.")) << e.out;
}

TEST_F(Forecast, TwoSideBySideDoNotMeet) {
  const auto go = [&](int batch) {
    const std::string out = at("both" + std::to_string(batch));
    return std::system((std::string(HEADROOM_BINARY_DIR) + "/headroom forecast --format json --device h100 --db " +
                        at("db" + std::to_string(batch)) + " -- " HEADROOM_LIKE_TORCH " batch=" + std::to_string(batch) + " > " + out +
                        " 2> /dev/null")
                           .c_str());
  };
  std::thread other([&] { go(4); });
  go(8);
  other.join();
  EXPECT_EQ(Json::parse(text_of(at("both4")))["peak_allocated_bytes"], 64 * mib + 4 * 256 * mib);
  EXPECT_EQ(Json::parse(text_of(at("both8")))["peak_allocated_bytes"], 64 * mib + 8 * 256 * mib);
}

TEST_F(Forecast, ARealRunIsHeardByTheSameNames) {
  for (const std::string how : {"all", "peaks"}) {
    const fs::path record = folder_ / how;
    fs::create_directory(record);
    const Ended e = shell("LD_PRELOAD=" HEADROOM_BINARY_DIR "/libheadroom_listen.so HEADROOM_LISTEN=" + how +
                          " HEADROOM_DRY_FOLDER=" + record.string() + " " HEADROOM_LIKE_TORCH " without-cuda batch=8 steps=3");
    ASSERT_EQ(e.code, 0) << e.err;
    const auto told = studies::measured_told(record.string(), {"like_torch"}, device_described("h100"));
    ASSERT_TRUE(told) << how;
    EXPECT_EQ(told->row.peak_allocated_bytes, std::uint64_t(64 * mib + 8 * 256 * mib)) << how;
    EXPECT_EQ(told->row.peak_reserved_bytes, std::uint64_t(64 * mib + 8 * 256 * mib)) << how;
    EXPECT_EQ(told->row.source, "measured");
    EXPECT_EQ(told->row.steps, 3) << how;
    EXPECT_EQ(told->accounts.front().blocks, how == "all" ? 4 : 2) << how;
  }
}

TEST_F(Forecast, ItIsKeptComparedAndShownAsEverythingElse) {
  ASSERT_EQ(run(line("--device h100", "batch=8")).code, 0);
  ASSERT_EQ(run(line("--device h100", "batch=8")).code, 0);
  const Ended same = run("compare 1 2 --db " + db_);
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  ASSERT_EQ(run(line("--device h100", "batch=16")).code, 0);
  const Ended other = run("compare 1 3 --db " + db_);  // two programs: the other one needs more
  EXPECT_EQ(other.code, 3) << other.out << other.err;
  EXPECT_NE(other.out.find("peak_allocated_bytes"), std::string::npos) << other.out;
  const Ended listed = run("results 1 --format json --db " + db_);
  EXPECT_EQ(Json::parse(listed.out)["rows"][0]["peak_allocated_bytes"], 64 * mib + 8 * 256 * mib) << listed.out;
  const Ended report = run("report 1 --format md --db " + db_);
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_NE(report.out.find("Live bytes over the run"), std::string::npos) << report.out;
  ASSERT_EQ(run(line("--device h100 --out " + at("a.json"), "batch=8")).code, 0);
  ASSERT_EQ(run(line("--device h100 --out " + at("page.html"), "batch=8")).code, 0);
  EXPECT_NE(text_of(at("page.html")).find("Live bytes over the run"), std::string::npos);
  EXPECT_EQ(run("compare " + at("a.json") + " " + at("a.json")).code, 0);
}

}  // namespace
}  // namespace headroom
#endif
