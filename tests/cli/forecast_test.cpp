// headroom forecast from the outside: programs of our own that call what PyTorch's allocator calls.
#include <set>

#include "studies/forecast/check.h"
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
  EXPECT_NE(e.out.find("The largest batch that fits on NVIDIA H100 SXM in 5.00 GiB is " + std::to_string(most)), std::string::npos)
      << e.out;
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

TEST_F(Forecast, WordsWithBlanksAreShownInQuotes) {
  const Json j = json("--device h100", "batch=1 'nothing but a word'", 0);
  EXPECT_EQ(j["program"], std::string(HEADROOM_LIKE_TORCH) + " batch=1 'nothing but a word'");
}

TEST_F(Forecast, OneOfAThingIsNotSaidAsSeveral) {
  const Ended e = run("forecast --device h100 --db " + db_ + " --sweep batch=1 -- " HEADROOM_LIKE_TORCH " batch={batch}");
  EXPECT_TRUE(e.out.starts_with("1 of 1 setting fits on NVIDIA H100 SXM.")) << e.out;
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
