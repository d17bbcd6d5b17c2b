#include "studies/results/comparison.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <map>

#include "base/error.h"
#include "report/render.h"
#include "store/described_json.h"
#include "studies/attention/row.h"
#include "studies/report/report.h"
#include "studies/step/step_time.h"

namespace headroom::studies {
namespace {

RowObject row(const char* variant, int len, double ms, double std, int steps = 100, const char* device = "a") {
  return {{"variant", variant}, {"len_q", len},      {"device", device}, {"fwd_ms", ms},
          {"fwd_ms_std", std},  {"bwd_ms", nullptr}, {"status", "ok"},   {"steps", steps}};
}

nlohmann::json said(const Comparison& c) { return nlohmann::json::parse(render(comparison_record(c, "A", "B", 0.02), Format::json)); }

std::string verdict(double a, double b, double std, int steps = 100) {
  const auto c = compare_runs({"A", {row("flash", 64, a, std, steps)}}, {"B", {row("flash", 64, b, std, steps, "another machine")}}, 0.02);
  EXPECT_EQ(c.pairs, 1u);
  const auto j = said(c);
  std::string verdict = j["rows"][0]["verdict"];
  EXPECT_EQ(c.slower(), verdict == "slower");
  return verdict;
}

TEST(Comparison, VerdictsHeedTheSpread) {
  EXPECT_EQ(verdict(1, 1.005, 0.001), "same");
  EXPECT_EQ(verdict(1, 1.2, 0.01), "slower");
  EXPECT_EQ(verdict(1, 0.8, 0.01), "faster");
  EXPECT_EQ(verdict(1, 1.05, 0.5, 4), "unclear");
  EXPECT_EQ(verdict(1, 1.0, 0.5, 4), "unclear") << "nothing is the same that is not known";
}

TEST(Comparison, ThePictureHasTheSpread) {
  const auto c = compare_runs({"A", {row("flash", 64, 1, 0.1)}}, {"B", {row("flash", 64, 2, 0.1)}}, 0.02);
  const Record r = comparison_record(c, "A", "B", 0.02);
  const auto chart = std::find_if(r.parts.begin(), r.parts.end(), [](const Part& p) { return std::holds_alternative<Chart>(p.is); });
  ASSERT_NE(chart, r.parts.end());
  const Chart::Series& s = std::get<Chart>(chart->is).series.at(0);
  ASSERT_EQ(s.spread.size(), 1u);
  EXPECT_DOUBLE_EQ(s.points[0].second, 2);
  EXPECT_DOUBLE_EQ(s.spread[0], 2 * c.times.at(0).spread.value());
  EXPECT_NE(render(r, Format::text).find("2.00× ± 0."), std::string::npos) << render(r, Format::text);
}

TEST(Comparison, AFlagThatAnOlderRunDoesNotKnowWasOff) {
  const auto attention = [](bool alibi) {
    AttentionRow r;
    r.variant = "flash", r.len_q = r.len_k = 64, r.alibi = alibi, r.fwd_ms = 1;
    return json_of(r);
  };
  RowObject older = attention(false);
  older.erase("alibi");
  EXPECT_EQ(compare_runs({"A", {older}}, {"B", {attention(false)}}, 0.02).pairs, 1u);
  for (const bool first : {true, false}) {
    const ComparedRun a{"A", {older}}, b{"B", {attention(true)}};
    const auto c = first ? compare_runs(a, b, 0.02) : compare_runs(b, a, 0.02);
    EXPECT_EQ(c.pairs, 0u) << "other scores than the older program had";
    EXPECT_EQ(c.missing, 1u);
  }
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
      const auto j = said(c);
      EXPECT_EQ(j["rows"][0]["verdict"], "unclear") << field;
      EXPECT_TRUE(j["rows"][0]["spread"].is_null()) << field;
      EXPECT_FALSE(c.slower());
    }
  }
}

// The time of a forecast is the same each time it is made, and a card's lies somewhere in its interval.
TEST(Comparison, TwoForecastsDifferByTheirTimesAndShowTheirIntervals) {
  const auto forecast = [](double ms) {
    return RowObject{{"program", "train.py"}, {"ms", ms}, {"ms_low", 0.8 * ms}, {"ms_high", 1.4 * ms}, {"status", "ok"}};
  };
  const auto c = compare_runs({"A", {forecast(10)}}, {"B", {forecast(12)}}, 0.02);
  const auto j = said(c);
  EXPECT_EQ(j["rows"][0]["verdict"], "slower");
  EXPECT_EQ(j["rows"][0]["a_interval"], "8 to 14 ms");
  EXPECT_EQ(j["rows"][0]["b_interval"], "9.6 to 16.8 ms");
  const std::string text = render(comparison_record(c, "A", "B", 0.02), Format::text);
  EXPECT_NE(text.find("the time of a step is 12 ms (forecast 9.6 to 16.8 ms) instead of 10 ms (forecast 8 to 14 ms): slower"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("There is one run of each"), std::string::npos) << text;
  EXPECT_EQ(said(compare_runs({"A", {forecast(10)}}, {"B", {forecast(10)}}, 0.02))["rows"][0]["verdict"], "same");
  const RowObject measured{{"program", "train.py"}, {"ms", 13.0}, {"status", "ok"}}, slow{{"program", "train.py"}, {"ms", 15.0}};
  const auto against = [&](const RowObject& row) { return said(compare_runs({"A", {forecast(10)}}, {"B", {row}}, 0.02))["rows"][0]; };
  EXPECT_EQ(against(measured)["verdict"], "unclear") << "in the interval";
  EXPECT_EQ(against(slow)["verdict"], "slower") << "above it";
}

// Bounds are numbers of a formula: without an interval, and yet known.
TEST(Comparison, BoundsOfForecastsHaveVerdicts) {
  const auto serving = [](double decode_ms) {
    return RowObject{{"model", "8B"}, {"batch", 4}, {"len", 64}, {"prefill_ms_at_least", 300.0}, {"decode_ms_at_least", decode_ms}};
  };
  const auto rows = said(compare_runs({"A", {serving(5)}}, {"B", {serving(4)}}, 0.02))["rows"];
  std::map<std::string, std::string> verdicts;
  for (const auto& row : rows) verdicts[row["time"]] = row["verdict"];
  EXPECT_EQ(verdicts, (std::map<std::string, std::string>{{"prefill at least", "same"}, {"decode at least", "faster"}}));
}

// Steps within a run lie close together, runs apart: of five runs of one command none is faster or slower than another.
TEST(Comparison, GoesByTheSpreadBetweenRunsWhereThereAreSeveral) {
  const double means[] = {1, 1.06, 0.97, 1.04, 1.08};
  const auto run_of = [&](int i) { return std::vector<RowObject>{row("flash", 64, means[i], 0.005)}; };
  const auto alone = said(compare_runs({"A", run_of(0)}, {"B", run_of(1)}, 0.02));
  EXPECT_EQ(alone["rows"][0]["verdict"], "slower");
  EXPECT_EQ(alone["rows"][0]["runs"], "one run each");
  EXPECT_NE(alone.dump().find("There is one run of each"), std::string::npos);
  for (int a = 0; a < 5; ++a)
    for (int b = a + 1; b < 5; ++b) {
      ComparedRun first{"A", run_of(a)}, second{"B", run_of(b)};
      for (int other = 0; other < 5; ++other) {
        if (other < b && other != a) first.again.push_back(run_of(other));
        if (other > a && other != b) second.again.push_back(run_of(other));
      }
      if (first.again.empty() && second.again.empty()) continue;
      const auto j = said(compare_runs(first, second, 0.02));
      EXPECT_NE(j["rows"][0]["verdict"], "slower") << a << b;
      EXPECT_NE(j["rows"][0]["verdict"], "faster") << a << b;
    }
  ComparedRun before{"A", run_of(0)}, after{"B", {row("flash", 64, 2, 0.005)}};
  for (int i = 1; i < 5; ++i) before.again.push_back(run_of(i)), after.again.push_back({row("flash", 64, 2 * means[i], 0.005)});
  const auto j = said(compare_runs(before, after, 0.02));
  EXPECT_EQ(j["rows"][0]["verdict"], "slower") << "twice as long is, by any spread";
  EXPECT_EQ(j["rows"][0]["runs"], "5 and 5 runs");
}

TEST(Comparison, RowsThatWereAskedNothingAlikeAreNoPairs) {
  const auto c = compare_runs({"A", {row("flash", 64, 1, 0.1)}}, {"B", {RowObject{{"step", 1}, {"loss", 3.0}}}}, 0.02);
  EXPECT_EQ(c.pairs, 0u);
  EXPECT_TRUE(c.changes.empty());
}

TEST(Comparison, TwoTrainingsAreAnsweredByTheirLosses) {
  const auto step = [](int at, double loss) { return RowObject{{"step", at}, {"loss", loss}, {"tokens_per_s", 1234.56789012345}}; };
  const auto c = compare_runs({"A", {step(50, 3.5), step(100, 3.012345678901), step(120, 2.9)}},
                              {"B", {step(50, 3.4), step(100, 2.712345678901), step(150, 2.2)}}, 0.02);
  const Record r = comparison_record(c, "A", "B", 0.02);
  EXPECT_EQ(r.title.find("B against A: at step 100 the loss is 2.712 instead of 3.012; "), 0u) << r.title;
  EXPECT_NE(r.title.find("; 1 other difference; 1 row is only in B."), std::string::npos) << "step 120 is missing: " << r.title;
  const std::string text = render(r, Format::text);
  EXPECT_EQ(text.find("3.012345678901"), std::string::npos) << "more digits than tell them apart: " << text;
  EXPECT_EQ(text.find("(none)"), std::string::npos) << "a table of times that no training has: " << text;
}

TEST(Comparison, PairsByTheQuestionAndCountsTheLonely) {
  const auto c = compare_runs({"A", {row("flash", 64, 1, 0), row("plain", 64, 1, 0), row("flash", 128, 1, 0)}},
                              {"B", {row("plain", 64, 1, 0), row("flash", 64, 2, 0), row("flash", 256, 1, 0)}}, 0.02);
  EXPECT_EQ(c.pairs, 2u);
  EXPECT_TRUE(c.slower());
  const auto j = said(c);
  EXPECT_EQ(j["summary"]["without_partner"], 2);
  EXPECT_EQ(j["rows"][0]["verdict"], "slower");
  EXPECT_EQ(j["rows"][1]["verdict"], "same");
}

TEST(Comparison, RowsOfAStepArePairedByPhase) {
  const auto step = [](const char* phase, double ms) {
    return RowObject{{"model", "small"}, {"len", 64},   {"phase", phase}, {"ms", ms},
                     {"ms_std", 0.01},   {"steps", 10}, {"mfu", 1 / ms},  {"status", "ok"}};
  };
  const auto c = compare_runs({"A", {step("forward", 10), step("train", 30)}}, {"B", {step("forward", 10), step("train", 40)}}, 0.02);
  EXPECT_EQ(c.pairs, 2u);
  const auto j = said(c);
  EXPECT_EQ(j["rows"][0]["verdict"], "same");
  EXPECT_EQ(j["rows"][1]["verdict"], "slower");
}

// What a lever costs is asked by comparing a run with it to one without; rows of one run are told apart by it.
TEST(Comparison, ALeverPairsRowsOnlyWhereARunHasSeveralOfItsValues) {
  const auto step = [](engine::Keep keep, double ms) {
    StepRow row{.model = "small", .batch = 4, .len = 64, .levers = {.keep = {keep}}, .phase = engine::Purpose::training, .ms = ms};
    row.ms_std = 0.01, row.steps = 10;
    return json_of(row);
  };
  const RowObject everything = step(engine::Keep::everything, 10), input = step(engine::Keep::input, 13);
  const auto one = compare_runs({"A", {everything}}, {"B", {input}}, 0.02);
  EXPECT_EQ(one.pairs, 1u);
  EXPECT_EQ(one.count(Verdict::slower), 1u);
  const auto several = compare_runs({"A", {everything, input}}, {"B", {input, everything}}, 0.02);
  EXPECT_EQ(several.pairs, 2u);
  EXPECT_EQ(several.count(Verdict::same), 2u);
  const auto fewer = compare_runs({"A", {everything, input}}, {"B", {input}}, 0.02);
  EXPECT_EQ(fewer.pairs, 1u);
  EXPECT_EQ(fewer.count(Verdict::same), 1u);
  EXPECT_EQ(fewer.missing, 1u);
  RowObject half = everything;
  half["logits"] = "half";
  EXPECT_EQ(compare_runs({"A", {everything}}, {"B", {half}}, 0.02).pairs, 0u) << "dtypes are part of the question";
}

TEST(Comparison, ARowThatNoLongerRunsIsADifference) {
  auto dead = row("flash", 64, 1, 0);
  dead["status"] = "oom", dead["fwd_ms"] = nullptr;
  EXPECT_TRUE(compare_runs({"A", {row("flash", 64, 1, 0)}}, {"B", {dead}}, 0.02).differs());
  EXPECT_FALSE(compare_runs({"A", {dead}}, {"B", {row("flash", 64, 1, 0)}}, 0.02).differs());
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
  const auto rows = said(c)["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["problem"], "step: train");
  EXPECT_EQ(rows[0]["verdict"], "slower");
  EXPECT_EQ(rows[1]["problem"], "modules: attention, norms");
  EXPECT_EQ(rows[2]["problem"], "kernels: k");
  EXPECT_EQ(rows[2]["ratio"], 1.5);
  EXPECT_EQ(rows[2]["verdict"], "unclear") << "its spread is not known";
}

// Each of these was "same", code 0.
TEST(Comparison, WhatIsLostMissingWrongOrLargerIsADifference) {
  RowObject before = row("flash", 64, 1, 0.001);
  before["peak_bytes"] = 1000, before["max_error_o"] = 1e-7;
  const auto verdict_of = [&](const char* field, const RowObject& now) {
    RowObject after = before;
    after[field] = now;
    const auto c = compare_runs({"A", {before}}, {"B", {after}}, 0.02);
    EXPECT_EQ(c.pairs, 1u);
    for (const ChangeRow& change : c.changes) {
      EXPECT_EQ(change.field, field);
      EXPECT_EQ(c.differs(), change.difference) << field << " " << now;
      return change.verdict;
    }
    EXPECT_FALSE(c.differs());
    return std::string("same");
  };
  EXPECT_EQ(verdict_of("fwd_ms", nullptr), "lost");
  EXPECT_EQ(verdict_of("max_error_o", 0.5), "worse");
  EXPECT_EQ(verdict_of("max_error_o", 2e-7), "same") << "another order of the sums";
  EXPECT_EQ(verdict_of("max_error_o", 1e-12), "same") << "both are rounding";
  EXPECT_EQ(verdict_of("peak_bytes", 100'000), "more");
  EXPECT_EQ(verdict_of("peak_bytes", 1010), "same");
  EXPECT_EQ(verdict_of("peak_bytes", 10), "less");
  EXPECT_EQ(verdict_of("peak_bytes", nullptr), "lost");
  EXPECT_EQ(verdict_of("status", "failed"), "ok → failed");
  EXPECT_EQ(verdict_of("why", "slowed down"), "same") << "what is noted is not compared";
  EXPECT_EQ(verdict_of("fwd_ms_std", 0.002), "same");
  RowObject without = before;
  without.erase("fwd_ms");
  EXPECT_TRUE(compare_runs({"A", {before}}, {"B", {without}}, 0.02).differs()) << "a column that is gone";

  const auto fewer = compare_runs({"A", {before, row("plain", 64, 1, 0)}}, {"B", {before}}, 0.02);
  EXPECT_TRUE(fewer.differs());
  EXPECT_EQ(fewer.missing, 1u);
  const auto more = compare_runs({"A", {before}}, {"B", {before, row("plain", 64, 1, 0)}}, 0.02);
  EXPECT_FALSE(more.differs()) << "more was asked, nothing is worse";
  EXPECT_EQ(more.added, 1u);
}

TEST(Comparison, ALossThatIsAnotherIsADifference) {
  const auto trained = [](double loss, double tokens) {
    return RowObject{{"step", 50}, {"loss", loss}, {"lr", 1e-3}, {"grad_norm", 2 * loss}, {"tokens_per_s", tokens}};
  };
  EXPECT_FALSE(compare_runs({"A", {trained(2, 100)}}, {"B", {trained(2.001, 99)}}, 0.02).differs());
  EXPECT_TRUE(compare_runs({"A", {trained(2, 100)}}, {"B", {trained(2.5, 100)}}, 0.02).differs());
  const auto slower = compare_runs({"A", {trained(2, 100)}}, {"B", {trained(2, 50)}}, 0.02);
  ASSERT_EQ(slower.changes.size(), 1u);
  EXPECT_EQ(slower.changes[0].verdict, "less, unclear") << "said, though its spread is not known";
}

TEST(Comparison, CeilingsPairWhateverTheClockWas) {
  const auto ceiling = [](int mhz, double ms, const char* held_back) {
    return RowObject{{"what", "matmul"},
                     {"dtype", "bf16"},
                     {"size", 8192},
                     {"copy_bytes_per_s", nullptr},
                     {"flops_per_s", 1e12 / ms},
                     {"time_ms", ms},
                     {"time_ms_std", 0.001},
                     {"steps", 50},
                     {"sm_mhz", mhz},
                     {"held_back", held_back}};
  };
  const auto c = compare_runs({"A", {ceiling(1980, 1, "")}}, {"B", {ceiling(1700, 1.2, "power limit")}}, 0.02);
  EXPECT_EQ(c.pairs, 1u);
  ASSERT_EQ(c.times.size(), 1u);
  EXPECT_EQ(c.times[0].verdict, Verdict::slower);
}

// A version that knows more of its rows pairs them with those of one that knew less.
TEST(Comparison, AFieldThatOnlyOneRunKnowsIsNotPartOfTheQuestion) {
  RowObject old = row("flash", 64, 1, 0.001), now = old;
  now["kv_heads"] = 1;
  EXPECT_EQ(compare_runs({"A", {old}}, {"B", {now}}, 0.02).pairs, 1u);
}

TEST(Comparison, CsvAndJsonOfOneRunAreTheSame) {
  const auto json =
      run_from_text(R"({"rows": [{"variant": "flash", "len_q": 64, "documents": "", "sink": false, "softcap": 0.0, "fwd_ms": 1.0,
      "fwd_ms_std": 0.001, "steps": 9, "status": "ok", "why": ""}]})",
                    "a.json");
  const auto csv =
      run_from_text("variant,len_q,documents,sink,softcap,fwd_ms,fwd_ms_std,steps,status,why\nflash,64,,false,0,1,0.001,9,ok,\n", "b.csv");
  const auto c = compare_runs(compared(json), compared(csv), 0.02);
  EXPECT_EQ(c.pairs, 1u);
  EXPECT_FALSE(c.differs());
}

TEST(Comparison, FourThousandRowsTakeNoTime) {
  std::vector<RowObject> rows;
  for (int i = 0; i < 4000; ++i) rows.push_back(row(i % 2 ? "flash" : "plain", i, 1 + i, 0.01));
  std::vector<RowObject> turned(rows.rbegin(), rows.rend());
  const std::clock_t start = std::clock();  // this process's own time
  const auto c = compare_runs({"A", rows}, {"B", turned}, 0.02);
  EXPECT_EQ(c.pairs, 4000u);
  EXPECT_FALSE(c.differs());
  EXPECT_LT(double(std::clock() - start) / CLOCKS_PER_SEC, 3) << "it was 20 seconds: every row asked every other";
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
