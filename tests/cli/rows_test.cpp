// Rows from the outside: what is kept, what is compared, and the code where the answer is no.
#include "tests/cli/program.h"

namespace headroom {
namespace {

const std::string one_small_step = " --device cpu --layers 1 --width 32 --heads 2 --vocab 64 --batch 1 --len 16 --warmup 0 --steps 2";

TEST_F(Program, WhereEveryRowIsOomOrRefusedTheAnswerIsNo) {
  EXPECT_EQ(run("attention --device cpu --len 64 --memory 0.00001 --db " + db_).code, 3) << "every row is oom";
  EXPECT_EQ(run("attention --device cpu --len 64 --dtype fp8 --steps 1 --db " + db_).code, 3) << "every row is refused";
  EXPECT_EQ(run("attention --device cpu --len 16,4096 --variant plain --batch 1 --memory 1MiB --steps 1 --db " + db_).code, 0)
      << "one row was measured";
  EXPECT_EQ(run("step --memory 0.000001 --db " + db_ + one_small_step).code, 3);
  std::ofstream(folder_ / "text.txt") << std::string(4000, 'a');
  const Ended train = run("train --device cpu --layers 200 --width 8192 --heads 64 --batch 64 --len 512 --steps 1 --format json --text " +
                          (folder_ / "text.txt").string() + " --db " + db_);
  EXPECT_EQ(train.code, 3) << train.err;
  EXPECT_EQ(Json::parse(train.out)["status"], "oom");
}

TEST_F(Program, ATrainingIsARunLikeEveryOther) {
  std::ofstream(folder_ / "text.txt") << std::string(2000, 'a') << std::string(2000, 'b');
  const std::string train =
      "train --device cpu --layers 1 --width 32 --heads 2 --len 16 --batch 2 --steps 20 --log-every 5 --validate 1 --text " +
      (folder_ / "text.txt").string() + " --db " + db_;
  const Ended first = run(train);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find("run 1 in"), std::string::npos) << first.err;
  const Json kept = Json::parse(run("results 1 --format json --db " + db_).out);
  ASSERT_EQ(kept["rows"].size(), 5u) << "the first step and every fifth";
  EXPECT_EQ(kept["rows"][4]["step"], 20);
  EXPECT_GT(kept["rows"][4]["loss"], 0);
  EXPECT_EQ(kept["settings"]["log_every"], 5);
  EXPECT_NE(run("report 1 --format md --db " + db_).out.find("Loss"), std::string::npos);
  ASSERT_EQ(run(train + " --lr 0.5").code, 0);
  EXPECT_EQ(run("compare 1 1 --db " + db_).code, 0);
  EXPECT_EQ(run("compare 1 2 --db " + db_).code, 3) << "the losses differ";
}

TEST_F(Program, ARunThatLostRowsOrValuesIsNotTheSame) {
  const std::string csv = (folder_ / "a.csv").string(), other = (folder_ / "b.csv").string();
  ASSERT_EQ(run("attention --device cpu --len 16,32 --batch 1 --dim 8 --steps 3 --db " + db_ + " --out " + csv).code, 0);
  EXPECT_EQ(run("compare " + csv + " " + csv).code, 0);
  std::string text = text_of(csv);
  std::ofstream(other) << text.substr(0, text.rfind('\n', text.size() - 2) + 1);
  const Ended fewer = run("compare " + csv + " " + other + " --format json");
  EXPECT_EQ(fewer.code, 3);
  EXPECT_EQ(Json::parse(fewer.out)["changes"][0]["verdict"], "missing");
  EXPECT_EQ(run("compare " + other + " " + csv).code, 0) << "more rows are no loss";
}

TEST_F(Program, AStepGoesOnWhereItWasCutShortAndJsonSaysItsVersion) {
  const Ended e = run("step --format json --resume --db " + db_ + one_small_step);
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.err.find("starting afresh"), std::string::npos) << e.err;
  EXPECT_EQ(Json::parse(e.out)["schema_version"], 1);
  std::ofstream(folder_ / "later.json") << R"({"schema_version": 99, "rows": [{"a": 1}]})";
  refused("report " + (folder_ / "later.json").string(), 2, "has schema version 99, this program knows 1");
}

TEST_F(Program, OneStepHasNoSpread) {
  const std::string tiny = " --device cpu --warmup 0 --batch 1 --len 16 --format json --db " + db_;
  for (const int steps : {1, 2}) {
    const std::string asked = fmt::format(" --steps {}", steps);
    const Json step = Json::parse(run("step --layers 1 --width 32 --heads 2 --vocab 64" + tiny + asked).out)["rows"][0];
    EXPECT_EQ(step["ms_std"].is_null(), steps == 1) << step;
    const Json attention = Json::parse(run("attention --variant flash" + tiny + asked).out)["rows"][0];
    EXPECT_EQ(attention["fwd_ms_std"].is_null(), steps == 1) << attention;
  }
}

TEST_F(Program, AWordThatNamesNothingIsRefusedByEveryOption) {
  refused("step --gradients hal", 2, "--gradients: there is no 'hal'; choose from whole, half, none; did you mean 'half'?");
  refused("train --text x --update sometimes", 2, "--update: there is no 'sometimes'; choose from after, during");
  refused("profile step --masters none", 2, "--masters: there is no 'none'; choose from whole, halves");
  refused("step --precision fp4", 2, "--precision: there is no 'fp4'; choose from fp32, tf32, bf16, fp16, fp8");
  refused("attention --mask window:0", 2, "--mask window:0: W and A of window:W and window:W+A are whole numbers from 1");
  refused("attention --mask window", 2, "as window:256");
  refused("attention --mask causl", 2, "did you mean 'causal'?");
  refused("attention --pass sideways", 2, "choose from forward, backward, both");
  refused("precision accumulate --method guess", 2, "choose from sequential, pairwise");
}

TEST_F(Program, AnOldCardIsNamedWhenItCannotServe) {
  const Ended e = run("memory attention --device a100 --dtype fp8 --len 64");
  EXPECT_NE((e.out + e.err).find("on NVIDIA A100"), std::string::npos) << e.out << e.err;
}

TEST_F(Program, ADevicePrintsWhatItKeeps) {
  const Ended e = run("device --device cpu --format json --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  const Json printed = Json::parse(e.out)["ceilings"][0], kept = Json::parse(run("results 1 --format json --db " + db_).out)["rows"][0];
  for (const auto& [name, value] : printed.items()) EXPECT_EQ(kept[name], value) << name;
  EXPECT_TRUE(printed.contains("time_ms") && printed["flops_per_s"].is_null()) << "a copy has no FLOPs";
}

TEST_F(Program, AProfileOfAttentionKeepsItsWholeProblem) {
  ASSERT_EQ(
      run("profile attention --device cpu --variant plain --len 32 --len-k 48 --heads 4 --kv-heads 2 --dim 8 --batch 1 --steps 1 --db " +
          db_)
          .code,
      0);
  const Json settings = Json::parse(run("results 1 --format json --db " + db_).out)["settings"];
  EXPECT_EQ(settings["kv_heads"], 2);
  EXPECT_EQ(settings["len_k"], 48);
}

}  // namespace
}  // namespace headroom
