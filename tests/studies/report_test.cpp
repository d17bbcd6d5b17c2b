// A report from rows: which charts they become, what of them is fitted, and what is refused.
#include "studies/report/report.h"

#include <gtest/gtest.h>

#include <ctime>

#include "base/error.h"
#include "engine/model/models.h"
#include "engine/model/plain_model.h"
#include "memory/ledger.h"
#include "report/render.h"
#include "studies/memory/live_bytes.h"
#include "studies/report/parts.h"
#include "studies/results/columns.h"
#include "studies/step/step_time.h"
#include "studies/train/train_run.h"
#include "tests/levers.h"
#include "tests/sanitizers.h"

namespace headroom::studies {
namespace {

std::vector<Chart> charts_in(const Record& r) {
  std::vector<Chart> out;
  for (const Part& p : r.parts) {
    if (const auto* c = std::get_if<Chart>(&p.is)) out.push_back(*c);
    if (const auto* inner = std::get_if<Record>(&p.is))
      for (auto& c : charts_in(*inner)) out.push_back(c);
  }
  return out;
}
const Table* table_in(const Record& r, const std::string& name) {
  for (const Part& p : r.parts) {
    if (const auto* t = std::get_if<Table>(&p.is); t && t->name == name) return t;
    if (const auto* inner = std::get_if<Record>(&p.is))
      if (const auto* t = table_in(*inner, name)) return t;
  }
  return nullptr;
}
std::vector<std::string> titles(const std::vector<Chart>& charts) {
  std::vector<std::string> out;
  for (const Chart& c : charts) out.push_back(c.choice.empty() ? c.title : c.title + ": " + c.choice);
  return out;
}
std::vector<std::string> names(const Chart& c) {
  std::vector<std::string> out;
  for (const auto& s : c.series) out.push_back(s.name);
  return out;
}

ReportRun attention_run() {
  std::string rows;
  for (const char* variant : {"plain", "flash"})
    for (const int len : {256, 512, 1024}) {
      const bool plain = variant[0] == 'p';
      const double ms = plain ? 1e-6 * len * len : 0.5e-6 * len * len;
      const int peak = plain ? 8 * len * len + 1024 * len : 2048 * len;
      rows += fmt::format(
          R"({}{{"variant": "{}", "device": "a machine", "dtype": "fp32", "batch": 1, "heads": 1, "kv_heads": 1, "dim": 64, "len_q": {},
             "len_k": {}, "mask": "full", "fwd_ms": {}, "bwd_ms": {}, "fwd_ms_std": 0.0, "bwd_ms_std": 0.0, "fwd_tflops": 1.0, "bwd_tflops": 1.0,
             "saved_bytes": {}, "peak_bytes": {}, "forecast_peak_bytes": {}, "max_error_o": 1e-7, "max_error_dq": 1e-7, "max_error_dk": 1e-7,
             "max_error_dv": 1e-7, "status": "ok", "why": "", "steps": 5, "warmup": 1}})",
          rows.empty() ? "" : ",", variant, len, len, ms, 2 * ms, peak / 2, peak, peak);
    }
  return run_from_text(R"({"device": {"name": "a machine", "kind": "cpu", "memory_bytes": 1073741824}, "rows": [)" + rows + "]}",
                       "sweep.json");
}

TEST(Report, AttentionGrowsToTheEdgeOfMemory) {
  const Record r = report_of({attention_run()}, nullptr);
  const auto charts = charts_in(r);
  EXPECT_EQ(titles(charts),
            (std::vector<std::string>{"Forward time over len: fp32 · dim 64 · full", "Backward time over len: fp32 · dim 64 · full",
                                      "Peak bytes over len: fp32 · dim 64 · full", "Bytes held for backward over len: fp32 · dim 64 · full",
                                      "Forward rate over len: fp32 · dim 64 · full", "Against plain: flash · fp32 · dim 64 · full",
                                      "Forecast against measured: peak_bytes"}));
  EXPECT_EQ(names(charts[0]), (std::vector<std::string>{"plain · ~ len^2.00", "flash · ~ len^2.00"}));
  const Chart& peak = charts[2];
  EXPECT_EQ(names(peak)[1], "flash · ~ len^1.00");
  ASSERT_EQ(peak.series.size(), 4u);
  EXPECT_EQ(peak.series[2].continues, peak.series[0].name);
  ASSERT_EQ(peak.marks.size(), 3u) << "the memory, and where either ends";
  EXPECT_EQ(peak.marks[0].at, 1073741824.0 / 16 * 15);
  EXPECT_TRUE(peak.marks[1].upright);
  EXPECT_EQ(peak.series[2].points.back().first, peak.marks[1].at) << "the forecast goes on to the edge";
  EXPECT_LE(peak.series[2].points.back().second, peak.marks[0].at);
  EXPECT_LT(peak.marks[1].at, peak.marks[2].at) << "plain ends first";
  EXPECT_EQ(charts[5].marks[0].name, "plain");
  EXPECT_NEAR(charts[5].series[0].points[0].second, 2, 1e-9) << "twice as fast";
  ASSERT_NE(table_in(r, "edge"), nullptr);
  ASSERT_NE(table_in(r, "rows"), nullptr);
  EXPECT_EQ(table_in(r, "rows")->rows.size(), 6u);
}

TEST(Report, PeersMeasuredSideBySideShareAChartAndABatchThatShrinksIsNoChoice) {
  const ReportRun run = run_from_text(
      "# NVIDIA H200\ndim,causal,batch,len,error,ours_ms,cudnn_ms\n64,0,32,512,1e-3,0.1,0.2\n64,0,16,1024,1e-3,0.2,0.4\n"
      "64,1,32,512,1e-3,0.05,0.1\n64,1,16,1024,1e-3,0.1,0.2\n",
      "peers.csv");
  EXPECT_EQ(run.notes, std::vector<std::string>{"NVIDIA H200"});
  Record r;
  add_growth(run, r);
  const auto charts = charts_in(r);
  EXPECT_EQ(titles(charts), (std::vector<std::string>{"Milliseconds over len"}));
  EXPECT_EQ(names(charts[0]), (std::vector<std::string>{"causal 0 ours · ~ len^1.00", "causal 0 cudnn · ~ len^1.00",
                                                        "causal 1 ours · ~ len^1.00", "causal 1 cudnn · ~ len^1.00"}));
  EXPECT_EQ(std::get<Note>(r.parts.back().is).text, "batch changes with len in these rows: an exponent is of both together.");
}

TEST(Report, ManyQuestionsBecomeAChoice) {
  std::string csv = "dim,mask,len,ours_ms,peer_ms\n";
  for (const int dim : {32, 64, 128})
    for (const char* mask : {"full", "causal"})
      for (const int len : {1, 2}) csv += fmt::format("{},{},{},{},{}\n", dim, mask, len, len * 1.0, len * 2.0);
  Record r;
  add_growth(run_from_text(csv, "x.csv"), r);
  const auto charts = charts_in(r);
  ASSERT_EQ(charts.size(), 3u);
  EXPECT_EQ(charts[1].choice, "dim 64");
  EXPECT_EQ(charts[1].series.size(), 4u);
}

TEST(Report, AStepIsCutIntoItsPhases) {
  const ReportRun run = run_from_text(R"({"rows": [
      {"model": "small", "batch": 1, "len": 16, "precision": "fp32", "phase": "forward", "ms": 10.0},
      {"model": "small", "batch": 1, "len": 16, "precision": "fp32", "phase": "forward+backward", "ms": 30.0},
      {"model": "small", "batch": 1, "len": 16, "precision": "fp32", "phase": "train", "ms": 34.0}]})",
                                      "step.json");
  Record r;
  add_step(run, r);
  const auto charts = charts_in(r);
  ASSERT_EQ(charts.size(), 1u);
  EXPECT_EQ(charts[0].ticks, std::vector<std::string>{"small len 16 fp32"});
  EXPECT_EQ(charts[0].series[0].points[0].second, 10);
  EXPECT_EQ(charts[0].series[1].points[0].second, 20);
  EXPECT_EQ(charts[0].series[2].points[0].second, 4);
}

TEST(Report, AProfilesTablesBecomeItsCharts) {
  const ReportRun run = run_from_text(R"({"step_ms": 3.0, "timeline": [
      {"start_ms": 5.0, "ms": 1.0, "kernel": "matmul", "op": "matmul", "part": "", "module": "ffn", "layer": 0, "phase": "forward", "stream": 0, "step": 1},
      {"start_ms": 6.0, "ms": 2.0, "kernel": "k", "op": "attention", "part": "softmax", "module": "attention", "layer": 0, "phase": "backward", "stream": 0, "step": 1},
      {"start_ms": 1.0, "ms": 9.0, "kernel": "k", "op": "x", "part": "", "module": "early", "layer": -1, "phase": "forward", "stream": 0, "step": 0}],
    "modules": [{"module": "ffn", "part": "", "forward_ms": 1.0, "backward_ms": 2.0, "optimizer_ms": null, "ms": 3.0, "share": 1.0}],
    "roofline": [{"op": "matmul", "precision": "fp32", "intensity": 100.0, "tflops": 0.5, "roof_tflops": 1.0, "bound": "arithmetic", "ms": 1.0, "roof_share": 0.5},
                 {"op": "norm", "precision": "fp32", "intensity": 0.5, "tflops": 0.04, "roof_tflops": 0.05, "bound": "memory", "ms": 1.0, "roof_share": 0.8}],
    "memory": [{"at_ms": 1.0, "live_bytes": 300, "bytes": 100, "name": "q", "shape": "10", "phase": "saved for backward"},
               {"at_ms": 2.0, "live_bytes": 500, "bytes": 200, "name": "s", "shape": "20", "phase": "workspace"},
               {"at_ms": 3.0, "live_bytes": 300, "bytes": -200, "name": "s", "shape": "20", "phase": "workspace"}]})",
                                      "profile.json");
  Record r;
  add_profile(run, r);
  const auto charts = charts_in(r);
  ASSERT_EQ(titles(charts), (std::vector<std::string>{"Kernel timeline", "Time by module", "Roofline", "Live bytes over the step"}));
  EXPECT_EQ(names(charts[0]), (std::vector<std::string>{"ffn", "attention"})) << "the last step alone";
  EXPECT_EQ(charts[0].series[1].points[0], (std::pair<double, double>{1, 3}));
  EXPECT_EQ(charts[0].series[1].names[0], "block 0 attention: softmax [k], backward");
  EXPECT_EQ(charts[0].marks[0].name, "backward");
  EXPECT_EQ(charts[1].series.size(), 2u) << "what takes no time is no part of a bar";
  const auto& roof = charts[2].series.back();
  EXPECT_EQ(roof.name, "roof: fp32");
  EXPECT_EQ(roof.points[1], (std::pair<double, double>{10, 1})) << "where memory's slope of 0.1 meets the peak";
  EXPECT_EQ(names(charts[3]), (std::vector<std::string>{"standing", "saved for backward", "workspace"}));
  EXPECT_EQ(charts[3].series[0].points[0].second, 200);
  EXPECT_EQ(charts[3].series[2].names[1], "+ s 20, 200 B (workspace)");
}

TEST(Report, AttentionAloneIsOfItsPartsForwardAndBackward) {
  const ReportRun run = run_from_text(R"({"step_ms": 3.0, "timeline": [
      {"start_ms": 1.0, "ms": 1.0, "op": "a", "part": "scores", "module": null, "phase": "forward", "step": 0},
      {"start_ms": 10.0, "ms": 1.0, "op": "a", "part": "scores", "module": null, "phase": "forward", "step": 1},
      {"start_ms": 11.0, "ms": 2.0, "op": "a", "part": "softmax", "module": null, "phase": "forward", "step": 1},
      {"start_ms": 90.0, "ms": 4.0, "op": "a", "part": "scores", "module": null, "phase": "backward", "step": 2}],
    "modules": [{"module": "", "part": "scores", "forward_ms": 1.0, "backward_ms": 4.0}]})",
                                      "attention.json");
  Record r;
  add_profile(run, r);
  const auto charts = charts_in(r);
  ASSERT_EQ(titles(charts), (std::vector<std::string>{"Kernel timeline", "Time by part"}));
  EXPECT_EQ(names(charts[0]), (std::vector<std::string>{"scores", "softmax"}));
  ASSERT_EQ(charts[0].series[0].points.size(), 2u) << "the last of each phase";
  EXPECT_EQ(charts[0].series[0].points[1], (std::pair<double, double>{3, 7})) << "backward follows forward";
  EXPECT_EQ(charts[0].marks[0].at, 3);
}

TEST(Report, AFieldThatAnotherSaysTellsNoLinesApart) {
  std::string rows;
  for (const char* model : {"small", "large"})
    for (const int len : {128, 256})
      rows += fmt::format(R"({}{{"model": "{}", "params": {}, "len": {}, "ms": 1.5}})", rows.empty() ? "" : ",", model,
                          model[0] == 's' ? 12 : 34, len);
  Record r;
  add_growth(run_from_text("[" + rows + "]", "rows.json"), r);
  const auto charts = charts_in(r);
  ASSERT_EQ(charts.size(), 1u);
  EXPECT_TRUE(charts[0].series[0].name.starts_with("small · ~")) << charts[0].series[0].name;
}

TEST(Report, AnotherProgramsTimelineIsOfItsPhases) {
  const ReportRun run = run_from_text(R"json({"exit_code": 0, "timeline": [
      {"start_ms": 5.0, "ms": 1.0, "kernel": "ns::k<int>(int)", "kind": "kernel", "phase": "step", "stream": 7},
      {"start_ms": 7.0, "ms": 1.0, "kernel": "fill", "kind": "fill", "phase": null, "stream": 7}],
    "kernels": [{"kernel": "ns::k<int>(int)", "ms": 1.0}],
    "memory": [{"at_ms": 1.0, "live_bytes": 100, "bytes": 100, "name": "cudaMalloc"}]})json",
                                      "program.json");
  Record r;
  add_profile(run, r);
  const auto charts = charts_in(r);
  ASSERT_EQ(titles(charts), (std::vector<std::string>{"Kernel timeline", "Kernels by total time", "Live bytes over the step"}));
  EXPECT_EQ(names(charts[0]), (std::vector<std::string>{"step", "outside every range"}));
  EXPECT_EQ(charts[0].series[0].names[0], "k<int>, step");
  EXPECT_EQ(charts[1].ticks[0], "k<int>");
  EXPECT_EQ(names(charts[2]), std::vector<std::string>{"device memory"});
}

TEST(Report, AFileMayHoldSeveralResults) {
  const auto runs = runs_from_text(R"({"machine": "a card", "runs": [
      {"command": "headroom profile step", "result": {"step_ms": 3.0, "kernels": [{"kernel": "k", "ms": 1.0}]}},
      {"command": "headroom profile attention", "result": {"step_ms": 4.0, "kernels": [{"kernel": "k", "ms": 2.0}]}}]})",
                                   "x.json");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[1].command, "headroom profile attention");
  EXPECT_EQ(runs[1].machine, "a card");
  EXPECT_EQ(runs[1].rows("step")[0]["step_ms"], 4.0);
  EXPECT_EQ(runs_from_text("a,ms\n1,2\n", "x.csv").size(), 1u);
}

TEST(Report, ATableWithinARowIsATableOfItsOwn) {
  const ReportRun run = run_from_text(
      R"({"rows": [{"model": "a", "components": [{"name": "q"}]}, {"model": "b", "components": [{"name": "q"}, {"name": "k"}]}]})",
      "x.json");
  EXPECT_FALSE(run.rows()[0].contains("components"));
  ASSERT_EQ(run.rows("components").size(), 3u);
  EXPECT_EQ(run.rows("components")[2]["row"], 2);
  EXPECT_EQ(run.rows("components")[2]["name"], "k");
}

TEST(Report, WordsStandBeforeNumbers) {
  const Record r = report_of({run_from_text("ms,settings,batch,why\n1.5,keep nothing,4,\n2.5,keep everything,4,\n", "x.csv")}, nullptr);
  const auto& section = std::get<Record>(r.parts.back().is);
  for (const Part& p : section.parts)
    if (const auto* t = std::get_if<Table>(&p.is); t && t->name == "rows") {
      EXPECT_EQ(t->columns[0].name, "settings");
      EXPECT_EQ(t->rows[1][0], Value("keep everything"));
      EXPECT_EQ(t->columns[1].name, "ms");
      return;
    }
  FAIL() << "no table of rows";
}

TEST(Report, TwoRunsBeginWithTheirDifferences) {
  ReportRun a = attention_run(), b = attention_run();
  b.name = "after";
  for (auto& row : b.tables[0].rows) row["fwd_ms"] = row["fwd_ms"].get<double>() * 3;
  const Record r = report_of({a, b}, nullptr);
  const auto* first = std::get_if<Record>(&r.parts.front().is);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->title, "after against sweep.json");
  const auto charts = charts_in(*first);
  ASSERT_EQ(charts.size(), 1u);
  EXPECT_NEAR(charts[0].series[0].points[0].second, 3, 1e-9) << "the largest difference comes first";
  b.tables[0].rows.clear();
  EXPECT_NE(charts_in(report_of({a, b}, nullptr)).size(), 0u) << "nothing in common is said, not refused";
}

TEST(Report, NothingIsAPageToo) {
  const Record r = report_of({}, nullptr);
  EXPECT_NE(std::get<Note>(r.parts.front().is).text.find("Nothing has been measured"), std::string::npos);
}

TEST(Report, AFileThatIsNoneIsRefusedInOneLine) {
  for (const char* bad : {"", "{", "{}", "3", "[1]", R"({"rows": 4})", R"({"rows": [null]})", R"({"a": [1, 2]})"})
    EXPECT_THROW(run_from_text(bad, "x.json"), Error) << bad;
  for (const char* bad : {"", "# only a remark", "a,b\n", "a,b\n1\n"}) EXPECT_THROW(run_from_text(bad, "x.csv"), Error) << bad;
  EXPECT_THROW(runs_from_file("/no/such/file.json"), Error);
}

TEST(Report, RowsThatAreAllAlikeAreATable) {
  const Record r = report_of({run_from_text(R"({"rows": [{"ms": 1.5}, {"ms": 1.5}, {"ms": 1.5}]})", "x.json")}, nullptr);
  const std::string text = render(r, Format::text);
  EXPECT_NE(text.find("   ms\n  1.5\n  1.5\n  1.5\n"), std::string::npos) << text;
}

TEST(Report, CsvIsReadAsItIsWritten) {
  const ReportRun run = run_from_text("name,x,y\r\n\"a, \"\"b\"\"\nc\",1,2.5\n,,oom\n", "x.csv");
  ASSERT_EQ(run.rows().size(), 2u);
  EXPECT_EQ(run.rows()[0]["name"], "a, \"b\"\nc");
  EXPECT_EQ(run.rows()[0]["x"], 1);
  EXPECT_EQ(run.rows()[0]["y"], 2.5);
  EXPECT_TRUE(run.rows()[1]["x"].is_null());
  EXPECT_EQ(run.rows()[1]["y"], "oom");
  EXPECT_EQ(run.machine, "");
  EXPECT_EQ(run_from_text("name,x\n'=1+1,-2\n'tis,1\n", "x.csv").rows()[0]["name"], "=1+1") << "as --format csv writes it";
  EXPECT_EQ(run_from_text("name,x\n'=1+1,-2\n'tis,1\n", "x.csv").rows()[1]["name"], "'tis");
  EXPECT_EQ(run_from_text("device,x\na card,1\na card,2\n", "x.csv").machine, "a card");
  EXPECT_EQ(run_from_text("device,x\na card,1\nanother,2\n", "x.csv").machine, "") << "of two machines it is neither's";
}

TEST(Report, RowsThatAreOurOwnHaveTheUnitsOfTheirDescription) {
  const std::vector<RowObject> step{json_of(StepRow{})}, train{json_of(TrainRow{})};
  EXPECT_TRUE(Columns("rows", step).described());
  EXPECT_EQ(Columns("rows", step).of("mfu").unit, Unit::share);
  EXPECT_EQ(Columns("rows", step).of("warmup").role, Role::asked);
  EXPECT_EQ(Columns("rows", train).of("step").role, Role::asked);
  EXPECT_EQ(Columns("rows", train).of("tokens_per_s").unit, Unit::per_s);
}

TEST(Report, AnotherProgramsFieldsAreReadByTheirNames) {
  const Columns none("rows", {});
  EXPECT_FALSE(none.described());
  EXPECT_EQ(none.of("peak_bytes").unit, Unit::bytes);
  EXPECT_EQ(none.of("ms").unit, Unit::ms);
  EXPECT_EQ(none.of("fwd_ms_std").unit, Unit::ms);
  EXPECT_EQ(none.of("copy_bytes_per_s").unit, Unit::bytes_per_s);
  EXPECT_EQ(none.of("flops_per_s").unit, Unit::flops);
  EXPECT_EQ(none.of("items").unit, Unit::none);
  EXPECT_EQ(none.of("kilobytes").unit, Unit::none) << "only a whole word counts";
  EXPECT_EQ(none.of("peer_ms").role, Role::measured);
  EXPECT_EQ(none.of("dim").role, Role::asked);
}

TEST(Report, WhatDidNotFitIsDrawnAsAForecast) {
  ReportRun run = attention_run();
  auto& rows = run.tables[0].rows;
  rows[2]["status"] = "oom", rows[2]["fwd_ms"] = rows[2]["bwd_ms"] = rows[2]["peak_bytes"] = nullptr;  // plain at 1024
  Record r;
  add_attention(run, r);
  for (const Chart& c : charts_in(r)) {
    if (c.title != "Peak bytes over len" && c.title != "Bytes held for backward over len") continue;
    EXPECT_EQ(c.series[0].points.size(), 2u) << c.title << ": two lengths were measured";
    const auto& forecast = *std::find_if(c.series.begin(), c.series.end(), [](const auto& s) { return s.name == "plain, forecast"; });
    EXPECT_EQ(forecast.continues, c.series[0].name);
    EXPECT_EQ(forecast.points.front(), c.series[0].points.back());
    EXPECT_TRUE(std::any_of(forecast.points.begin(), forecast.points.end(), [](const auto& p) { return p.first == 1024; })) << c.title;
  }
}

TEST(Report, ATrainingsLossIsACurve) {
  std::string rows;
  for (const int step : {100, 1, 50})
    rows += fmt::format(R"({}{{"step": {}, "loss": {}, "lr": 0.001, "grad_norm": null, "tokens_per_s": 10.0}})", rows.empty() ? "" : ",",
                        step, 3.0 - step / 100.0);
  Record r;
  add_train(run_from_text("[" + rows + "]", "train.json"), r);
  const auto charts = charts_in(r);
  EXPECT_EQ(titles(charts), (std::vector<std::string>{"Loss", "Learning rate", "Tokens per second"}));
  EXPECT_EQ(charts[0].series[0].points[0], (std::pair<double, double>{1, 2.99})) << "in the order of the steps";
  EXPECT_FALSE(charts[0].log);
}

std::string peak_said(const Chart& chart) {
  for (const auto& mark : chart.marks)
    if (mark.name.starts_with("peak")) return fmt::format("{} {}", mark.name, mark.at);
  return "";
}

// A run of one step, as headroom step keeps it.
ReportRun step_run(const std::string& machine) {
  StepTime asked;
  asked.models = {engine::model_described("small")}, asked.batch = 1, asked.lens = {64},
  asked.levers.precision = {{DType::bf16, Math::exact}};
  change_sizes(asked.models[0], [](engine::PlainModel& m) { m.layers = 2; });
  StepRow row;
  row.model = "small", row.batch = 1, row.len = 64, row.levers.precision = asked.levers.precision[0], row.phase = engine::Purpose::training,
  row.ms = 1;
  ReportRun run{"run 1", "step", machine, "", "", ""};
  run.settings = json_of(asked);
  run.tables = {{"rows", {json_of(row)}}};
  return run;
}

// The live bytes are those of the step that ran, with every lever as it was.
TEST(Report, LiveBytesAreOfTheStepThatRanWhateverItsLevers) {
  const Device h200 = device_described("h200");
  for (const engine::LeverCase& c : engine::lever_cases()) {
    SCOPED_TRACE(c.lever + " " + c.word);
    StepTime asked;
    asked.models = {engine::model_of_levers()}, asked.batch = 4, asked.lens = {64}, asked.levers = lists_of(c.levers);
    const std::string who = asked.models[0].name;
    const StepRow row{.model = who, .batch = 4, .len = 64, .levers = c.levers, .phase = engine::Purpose::training, .ms = 1.0};
    ReportRun run{"run 1", "step", h200.name, "", "", ""};
    run.settings = json_of(asked);
    run.tables = {{"rows", {json_of(row)}}};
    Record r;
    add_step(run, r);
    const auto charts = charts_in(r);
    ASSERT_EQ(charts.size(), 1u);
    engine::Recipe recipe = engine::step_of_levers(c.levers);
    engine::find_keep(recipe, h200.memory_bytes, h200, 1);
    EXPECT_EQ(peak_said(charts[0]), peak_said(live_bytes_chart(engine::forecast(recipe, h200, 1), h200.memory_bytes)));
  }
}

// A run of an earlier version: levers are in its settings, one value each, and its rows have few of them.
TEST(Report, LiveBytesOfAnEarlierRunAreOfItsSettings) {
  ReportRun run = step_run(device_described("h200").name);
  run.settings = RowObject::parse(
      R"({"batch": 1, "len": [64], "precision": ["bf16"], "scales": null, "keep": "input", "attention": "plain", "logits": "half",
          "masters": "halves", "update": "during", "gradients": "none"})");
  run.settings["models"] = json_of(StepTime{.models = {engine::model_of_levers()}})["models"];
  run.tables = {
      {"rows", {RowObject::parse(R"({"model": "levers", "batch": 1, "len": 64, "precision": "bf16", "phase": "train", "ms": 1.0})")}}};
  Record r;
  add_step(run, r);
  const Device h200 = device_described("h200");
  engine::Recipe recipe(engine::model_of_levers(), 1, 64, {DType::bf16}, {engine::Keep::input}, "plain");
  recipe.logits = engine::Logits::half;
  recipe.holding = {engine::Masters::halves, engine::Updating::during, engine::Gradients::none};
  const auto charts = charts_in(r);
  ASSERT_EQ(charts.size(), 1u);
  EXPECT_EQ(peak_said(charts[0]), peak_said(live_bytes_chart(engine::forecast(recipe, h200, 1), h200.memory_bytes)));
}

TEST(Report, LiveBytesOfAGpusStepAreForecastOnThatGpu) {
  const auto peak = [](const std::string& machine) {
    Record r;
    add_step(step_run(machine), r);
    const auto charts = charts_in(r);
    EXPECT_EQ(charts.size(), 1u) << machine;
    std::string said;
    for (const auto& m : charts.empty() ? std::vector<Chart::Mark>() : charts[0].marks)
      if (m.name.starts_with("peak")) said = m.name;
    EXPECT_NE(said, "") << machine;
    return said;
  };
  EXPECT_NE(peak("NVIDIA H200"), peak(cpu_device().name)) << "a GPU's step holds other tensors than a CPU's";
  Record r;
  add_step(step_run("a card that nobody knows"), r);
  EXPECT_TRUE(charts_in(r).empty());
  EXPECT_NE(std::get<Note>(r.parts.back().is).text.find("nothing is known"), std::string::npos);
}

TEST(Report, BackwardIsMarkedWhereItBegins) {
  Record r;
  add_step(step_run(cpu_device().name), r);
  const auto charts = charts_in(r);
  ASSERT_EQ(charts.size(), 1u);
  const auto& marks = charts[0].marks;
  const auto backward = std::find_if(marks.begin(), marks.end(), [](const auto& m) { return m.name == "backward"; });
  ASSERT_NE(backward, marks.end());
  double saved_at_the_mark = 0, most_saved = 0;
  for (const auto& s : charts[0].series) {
    if (s.name != name_of(Phase::saved)) continue;
    for (const auto& [at, bytes] : s.points) {
      most_saved = std::max(most_saved, bytes);
      if (at <= backward->at) saved_at_the_mark = bytes;
    }
  }
  EXPECT_EQ(saved_at_the_mark, most_saved) << "everything that forward keeps is there when backward begins";
}

TEST(Report, FourThousandRowsTakeSeconds) {
  std::string rows;
  for (int i = 0; i < 4000; ++i)
    rows += fmt::format(R"({}{{"variant": "{}", "dtype": "fp32", "batch": 1, "heads": 1, "kv_heads": 1, "dim": {}, "len_q": {}, "len_k": {},
        "mask": "full", "fwd_ms": 1.0, "saved_bytes": 1000, "peak_bytes": 2000, "forecast_peak_bytes": 2000, "status": "ok", "steps": 3}})",
                        i ? "," : "", i % 2 ? "flash" : "plain", 1 + i / 2 % 20, 16 + i / 40, 16 + i / 40);
  const ReportRun run = run_from_text("[" + rows + "]", "many.json");
  const std::clock_t start = std::clock();  // this process's own time: a busy machine is no slower report
  const Record r = report_of({run, run}, nullptr);
  constexpr double most = thread_sanitizer ? 60 : 10;  // 18 s under the sanitizer
  EXPECT_LT(double(std::clock() - start) / CLOCKS_PER_SEC, most);
  EXPECT_EQ(table_in(r, "rows")->rows.size(), 4000u);
}

}  // namespace
}  // namespace headroom::studies
