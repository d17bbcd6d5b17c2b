#include "studies/comparison.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "report/render.h"
#include "studies/report/report.h"

namespace headroom::studies {
namespace {

nlohmann::json row(const char* variant, int len, double ms, double std, int steps = 100, const char* device = "a") {
  return {{"variant", variant}, {"len_q", len},      {"device", device}, {"fwd_ms", ms},
          {"fwd_ms_std", std},  {"bwd_ms", nullptr}, {"status", "ok"},   {"steps", steps}};
}

std::string verdict(double a, double b, double std, int steps = 100) {
  const auto c = compare_runs({"A", {row("flash", 64, a, std, steps)}}, {"B", {row("flash", 64, b, std, steps, "another machine")}}, 0.02);
  EXPECT_EQ(c.pairs, 1u);
  const auto j = nlohmann::json::parse(render(c.record, Format::json));
  std::string said = j["rows"][0]["verdict"];
  EXPECT_EQ(c.slower, said == "slower");
  return said;
}

TEST(Comparison, VerdictsHeedTheSpread) {
  EXPECT_EQ(verdict(1, 1.005, 0.001), "same");
  EXPECT_EQ(verdict(1, 1.2, 0.01), "slower");
  EXPECT_EQ(verdict(1, 0.8, 0.01), "faster");
  EXPECT_EQ(verdict(1, 1.05, 0.5, 4), "unclear");
  EXPECT_EQ(verdict(1, 1.0, 0.5, 4), "unclear") << "nothing is the same that is not known";
}

TEST(Comparison, ASingleStepOrNoSpreadLeavesItUnclear) {
  EXPECT_EQ(verdict(1, 3, 0, 1), "unclear");
  EXPECT_EQ(verdict(1, 1, 0, 1), "unclear");
  EXPECT_EQ(verdict(1, 3, 0, 2), "slower");
  auto without = row("flash", 64, 3, 0);
  for (const char* field : {"fwd_ms_std", "steps"}) {
    auto lacks = without;
    lacks.erase(field);
    for (const bool first : {true, false}) {
      const auto c = first ? compare_runs({"A", {lacks}}, {"B", {without}}, 0.02) : compare_runs({"A", {without}}, {"B", {lacks}}, 0.02);
      const auto j = nlohmann::json::parse(render(c.record, Format::json));
      EXPECT_EQ(j["rows"][0]["verdict"], "unclear") << field;
      EXPECT_TRUE(j["rows"][0]["spread"].is_null()) << field;
      EXPECT_FALSE(c.slower);
    }
  }
}

TEST(Comparison, PairsByTheQuestionAndCountsTheLonely) {
  const auto c = compare_runs({"A", {row("flash", 64, 1, 0), row("plain", 64, 1, 0), row("flash", 128, 1, 0)}},
                              {"B", {row("plain", 64, 1, 0), row("flash", 64, 2, 0), row("flash", 256, 1, 0)}}, 0.02);
  EXPECT_EQ(c.pairs, 2u);
  EXPECT_TRUE(c.slower);
  const auto j = nlohmann::json::parse(render(c.record, Format::json));
  EXPECT_EQ(j["summary"]["without_partner"], 2);
  EXPECT_EQ(j["rows"][0]["verdict"], "slower");
  EXPECT_EQ(j["rows"][1]["verdict"], "same");
}

TEST(Comparison, RowsOfAStepArePairedByPhase) {
  const auto step = [](const char* phase, double ms) {
    return nlohmann::json{{"model", "small"}, {"len", 64},   {"phase", phase}, {"ms", ms},
                          {"ms_std", 0.01},   {"steps", 10}, {"mfu", 1 / ms},  {"status", "ok"}};
  };
  const auto c = compare_runs({"A", {step("forward", 10), step("train", 30)}}, {"B", {step("forward", 10), step("train", 40)}}, 0.02);
  EXPECT_EQ(c.pairs, 2u);
  const auto j = nlohmann::json::parse(render(c.record, Format::json));
  EXPECT_EQ(j["rows"][0]["verdict"], "same");
  EXPECT_EQ(j["rows"][1]["verdict"], "slower");
}

TEST(Comparison, ARowThatNoLongerRunsIsSlower) {
  auto dead = row("flash", 64, 1, 0);
  dead["status"] = "oom", dead["fwd_ms"] = nullptr;
  EXPECT_TRUE(compare_runs({"A", {row("flash", 64, 1, 0)}}, {"B", {dead}}, 0.02).slower);
  EXPECT_FALSE(compare_runs({"A", {dead}}, {"B", {row("flash", 64, 1, 0)}}, 0.02).slower);
}

TEST(Comparison, ProfilesAreHeldAgainstEachOtherByWhatTookTheTime) {
  const auto profile = [](double covered, double step_ms, double kernel_ms) {
    return compared(run_from_text(fmt::format(R"({{"phase": "train", "steps": 10, "step_ms": {}, "step_ms_std": 0.01, "covered": {},
        "kernels": [{{"kernel": "k", "kind": "host", "count": 12.0, "ms": {}, "share": {}, "mean_us": 1.5}}],
        "modules": [{{"module": "attention", "part": "norms", "forward_ms": null, "ms": 1.0, "share": 0.2}}],
        "roofline": [{{"op": "k", "ms": 1.0}}]}})",
                                              step_ms, covered, kernel_ms, kernel_ms / step_ms),
                                  "profile.json"));
  };
  const auto c = compare_runs(profile(0.99, 10, 4), profile(0.98, 12, 6), 0.02);
  EXPECT_EQ(c.pairs, 3u) << "what came out, as the share that is covered, is no question";
  const auto rows = nlohmann::json::parse(render(c.record, Format::json))["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["problem"], "step: train");
  EXPECT_EQ(rows[0]["verdict"], "slower");
  EXPECT_EQ(rows[1]["problem"], "modules: attention, norms");
  EXPECT_EQ(rows[2]["problem"], "kernels: k");
  EXPECT_EQ(rows[2]["ratio"], 1.5);
  EXPECT_EQ(rows[2]["verdict"], "unclear") << "its spread is not known";
}

TEST(Comparison, FilesThatHoldNoRowsAreRefused) {
  EXPECT_EQ(compared(run_from_text(R"({"rows": [{"a": 1}]})", "f")).rows.size(), 1u);
  EXPECT_EQ(compared(run_from_text(R"([{"a": 1}, {}])", "f")).rows.size(), 2u);
  const ComparedRun of_another = compared(run_from_text("a,status,ms\n1,0,3\n2,0,4\n", "f.csv"));
  EXPECT_EQ(compare_runs(of_another, of_another, 0.02).pairs, 2u) << "a status that is no word";
  for (auto bad : {"", "{", "{}", "3", "[1]", R"({"rows": 4})", R"({"rows": [null]})"}) EXPECT_THROW(run_from_text(bad, "f"), Error) << bad;
  try {
    run_from_text(R"([{"status": "ok"}, {"status": 5}])", "f");
    FAIL() << "a status is a word";
  } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find("row 2 of 'f' is damaged"), std::string::npos) << e.what(); }
}

}  // namespace
}  // namespace headroom::studies
