// Steps and trainings of a language model as a user meets them: measured, stopped, killed, and gone on with.
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "tests/cli/model_program.h"

namespace headroom {
namespace {

TEST_F(ModelProgram, LogitsOfSixteenBitsTakeLessAndTrain) {
  const std::string model = " --layers 1 --width 32 --heads 2 --len 32 --batch 8 --precision bf16 ";
  const Json whole = answer("memory model --vocab 20000" + model)["rows"][0],
             half = answer("memory model --vocab 20000 --logits half" + model)["rows"][0];
  EXPECT_LT(half["train_peak_bytes"], whole["train_peak_bytes"]);
  put("text.txt", std::string(3000, 'a') + std::string(3000, 'b'));
  const std::string train = "train --steps 20 --validate 4 --text " + at("text.txt") + model;
  const Json exact = answer(train), rounded = answer(train + "--logits half --save " + at("run"));
  EXPECT_NE(rounded["validation_loss"], exact["validation_loss"]);
  EXPECT_NEAR(rounded["validation_loss"].get<double>(), exact["validation_loss"].get<double>(), 0.02);
  EXPECT_EQ(rounded["peak_bytes"], rounded["forecast_peak_bytes"]);
  refused(train + "--logits whole --resume --save " + at("run"), 2, "was trained with logits \"half\", this run asks for \"whole\"");
}

TEST_F(ModelProgram, TrainingFindsTheLevelsThatFit) {
  put("text.txt", std::string(3000, 'a') + std::string(3000, 'b'));
  const std::string train =
      "train --layers 6 --width 64 --heads 2 --len 64 --batch 4 --threads 1 --device cpu --steps 3 --validate 1 --text " + at("text.txt");
  const Json all = answer(train), least = answer(train + " --keep input");
  const double middle = (all["forecast_peak_bytes"].get<double>() + least["forecast_peak_bytes"].get<double>()) / 2;
  const std::string gib = fmt::format(" --keep auto --memory {:.9f}", middle / double(1 << 30));
  const Json found = answer(train + gib);
  EXPECT_LE(found["peak_bytes"].get<double>(), middle);
  EXPECT_EQ(found["peak_bytes"], found["forecast_peak_bytes"]);
  EXPECT_NE(found["kept"].get<std::string>().find(" × "), std::string::npos) << found["kept"];
  EXPECT_EQ(found["validation_loss"], all["validation_loss"]);
  EXPECT_EQ(answer(train + " --keep auto")["kept"], "everything");
  EXPECT_EQ(answer(train + " --keep auto --memory 0.0001", 3)["status"], "oom");
}

TEST_F(ModelProgram, AStepTakesWhatWasForecastAndOneThatDoesNotFitIsARow) {
  keep_ceilings(1e15);
  const Json j = answer("step --device cpu --len 16,32 --precision fp32,bf16 --steps 2 --warmup 1" + small_model);
  ASSERT_EQ(j["rows"].size(), 12u);
  for (const Json& row : j["rows"]) {
    EXPECT_EQ(row["status"], "ok") << row;
    EXPECT_EQ(row["peak_bytes"], row["forecast_peak_bytes"]) << row;
    EXPECT_GT(row["ms"], 0.0);
    EXPECT_NEAR(row["mfu"].get<double>(), row["model_tflops"].get<double>() * 1e12 / 1e15, 1e-6 * row["mfu"].get<double>())
        << "against the ceiling that was kept";
  }
  const Json mixed = answer("step --len 16 --device cpu --precision tf32,fp32 --steps 1 --warmup 0" + small_model);
  ASSERT_EQ(mixed["rows"].size(), 6u);
  EXPECT_EQ(mixed["rows"][0]["status"], "refused");
  EXPECT_NE(mixed["rows"][0]["why"].get<std::string>().find("tf32 needs a GPU"), std::string::npos) << mixed["rows"][0];
  EXPECT_EQ(mixed["rows"][3]["status"], "ok") << "the others are timed all the same";
  const Json refused = answer("step --device cpu --len 16 --memory 0.0001 --steps 1" + small_model, 3);
  for (const Json& row : refused["rows"]) {
    EXPECT_EQ(row["status"], "oom");
    EXPECT_NE(row["why"].get<std::string>().find("could not be allocated"), std::string::npos) << row;
  }
}

TEST_F(ModelProgram, CtrlCKeepsTheStepsThatWereDoneAndSaysSo) {
  std::ofstream(folder_ / "text.txt") << std::string(4000, 'a') << std::string(4000, 'b');
  const std::string save = (folder_ / "run").string(), out = (folder_ / "train.json").string();
  const pid_t child = start({"train",    "--text",  (folder_ / "text.txt").string(),
                             "--layers", "1",       "--width",
                             "32",       "--heads", "2",
                             "--len",    "32",      "--batch",
                             "2",        "--steps", "1000000",
                             "--every",  "5",       "--save",
                             save,       "--out",   out,
                             "--format", "json"});
  int status = 0;
  while (!fs::exists(fs::path(save) / "step-00000005.safetensors") && waitpid(child, &status, WNOHANG) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(child, SIGINT);
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  const Json j = Json::parse(text_of(out));
  EXPECT_EQ(j["stopped"], true);
  EXPECT_FALSE(j.contains("validation_loss"));
  EXPECT_TRUE(fs::exists(fs::path(save) / fmt::format("step-{:08}.safetensors", j["step"].get<std::int64_t>())));
}

TEST_F(ModelProgram, RanksTrainToTheDigitsOfOneWithAsManyMicroBatches) {
  std::string text;
  for (int i = 0; i < 6000; ++i) text += char('a' + i * i % 23);
  std::ofstream(folder_ / "text.txt") << text;
  const std::string common =
      "train --device cpu --threads 1 --layers 2 --width 40 --heads 2 --len 24 --batch 2 --steps 6 --validate 5 --text " +
      (folder_ / "text.txt").string();
  const auto learned = [](Json j) {  // every digit but the speed and the bytes
    for (const char* own : {"answer", "tokens_per_s", "peak_bytes", "forecast_peak_bytes", "made_by"}) j.erase(own);
    for (auto& row : j["rows"]) row.erase("tokens_per_s");
    return j;
  };
  const Json one = learned(answer(common + " --micro-batches 2"));
  for (const char* shard : {"none", "optimizer", "gradients", "everything"}) {
    const Json two = answer(common + " --ranks 2 --shard " + shard);
    EXPECT_EQ(learned(two), one) << shard;
    EXPECT_EQ(two["peak_bytes"].get<std::int64_t>(), two["forecast_peak_bytes"].get<std::int64_t>());
  }
  refused(common + " --shard optimizer", 2, "there is one rank");
}

TEST_F(ModelProgram, AFreshRunBeginsWithTheWeightsOfAnother) {
  std::ofstream(folder_ / "text.txt") << std::string(2000, 'a') << "bcd" << std::string(2000, 'e');
  const std::string common = " --text " + (folder_ / "text.txt").string() + " --len 16 --batch 2 --validate 0",
                    save = (folder_ / "run").string();
  const Json first = answer("train --layers 1 --width 32 --heads 2 --steps 30 --save " + save + common);
  const Json again = answer("train --steps 0 --sample 5 --temperature 0.01 --prompt ab --init " + save + common);
  EXPECT_EQ(again["validation_loss"], first["validation_loss"]);
  EXPECT_EQ(again["sample"].get<std::string>().size(), 5u);
  refused("train --steps 1 --layers 2 --init " + save + common, 2, "leave --layers out");
}

TEST_F(ModelProgram, TrainingMayHoldLessAndGoesOnWhereItStopped) {
  std::ofstream(folder_ / "text.txt") << std::string(2000, 'a') << "bcd" << std::string(2000, 'e');
  const std::string common = "train --text " + (folder_ / "text.txt").string() +
                             " --layers 1 --width 32 --heads 2 --len 16 --batch 2 --validate 0 --precision bf16 --warmup 0",
                    less = common + " --masters halves --gradients half --update during", save = (folder_ / "run").string();
  const Json whole = answer(common + " --clip 0 --steps 20"), through = answer(less + " --steps 20");
  EXPECT_LT(through["forecast_peak_bytes"], whole["forecast_peak_bytes"]);
  EXPECT_NEAR(through["validation_loss"].get<double>(), whole["validation_loss"].get<double>(), 0.02);
  EXPECT_TRUE(through["rows"][0]["grad_norm"].is_null()) << "nobody knows it";
  EXPECT_GT(whole["rows"][0]["grad_norm"], 0);
  answer(less + " --steps 20 --every 5 --save " + save);
  fs::remove(save + "/step-00000020.safetensors");  // as if it had been killed after step 15
  EXPECT_EQ(answer(less + " --steps 20 --resume --save " + save)["validation_loss"], through["validation_loss"]);
  fs::remove(save + "/step-00000020.safetensors");
  refused(common + " --masters whole --steps 20 --resume --save " + save, 2, "was trained with masters");
  refused(less + " --clip 1 --steps 20", 2, "--update after");
  refused(less + " --steps 20 --micro-batches 2", 2, "one micro-batch");
}

TEST_F(ModelProgram, Fp8TrainsOnACpuGoesOnAndMayBeginOrEndInAnotherPrecision) {
  {
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 60; ++i) text << "line " << i * i << " of a text that is long enough to learn a little from\n";
  }
  const std::string common = "train --device cpu --text " + (folder_ / "text.txt").string() +
                             " --layers 1 --width 48 --heads 2 --len 24 --batch 2 --validate 0 --warmup 0 --precision ",
                    save = (folder_ / "run").string(), to_12 = " --steps 12", keep = to_12 + " --every 4 --resume --save " + save;
  const double bf16 = answer(common + "bf16" + to_12)["validation_loss"];
  for (const std::string scales : {"tensor", "row", "block"}) {
    const Json j = answer(common + "fp8 --scales " + scales + to_12);
    EXPECT_EQ(j["peak_bytes"], j["forecast_peak_bytes"]);
    EXPECT_NEAR(j["validation_loss"].get<double>(), bf16, 0.05);
    EXPECT_EQ(j["rows"].back()["clipped"], 0);
    EXPECT_GE(j["rows"].back()["flushed"], 0);
    EXPECT_NE(j["notes"].dump().find("fp8: the blocks' products, scales by " + scales), std::string::npos) << j["notes"];
  }
  const Json through = answer(common + "fp8 --copies kept --every 4 --save " + save + to_12);
  const auto last = save + "/step-00000012.safetensors";
  fs::remove(last);  // as if it had been killed after step 8
  EXPECT_EQ(answer(common + "fp8" + keep)["validation_loss"], through["validation_loss"]);
  fs::remove(last);
  EXPECT_EQ(answer(common + "fp8 --copies made" + keep)["validation_loss"], through["validation_loss"]) << "copies change no bit";
  fs::remove(last);
  refused(common + "fp8 --scales row" + keep, 2, "was trained with scales");
  refused(common + "bf16" + keep, 2,
          "this run asks for \"bf16\"; resume with the same, change it by --switch-precision, or save elsewhere");
  std::string unsaid = common;
  unsaid.erase(unsaid.find("--precision "));
  EXPECT_EQ(answer(unsaid + keep)["validation_loss"], through["validation_loss"]) << "it goes on in the precision that it began in";
  fs::remove(last);
  const Json ended = answer(common + "bf16 --switch-precision" + keep);
  EXPECT_EQ(ended["step"], 12) << "it keeps no copies, as that run did";
  EXPECT_NE(ended["validation_loss"], through["validation_loss"]);
  const std::string sizes = " --layers 1 --width 48 --heads 2";  // which the folder knows
  std::string from_weights = common;
  from_weights.erase(from_weights.find(sizes), sizes.size());
  EXPECT_EQ(answer(from_weights + "fp8 --steps 0 --init " + save)["step"], 0) << "weights are FP32 in the file";
}

TEST_F(ModelProgram, ATrainingThatWasKilledEndsInTheSameBits) {
  {
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 60; ++i) text << "line " << i * i << " of a text that is long enough to learn a little from\n";
  }
  const auto words = [&](const char* folder) {
    return std::vector<std::string>{"train",
                                    "--text",
                                    (folder_ / "text.txt").string(),
                                    "--layers",
                                    "1",
                                    "--width",
                                    "32",
                                    "--heads",
                                    "2",
                                    "--len",
                                    "32",
                                    "--batch",
                                    "2",
                                    "--steps",
                                    "300",
                                    "--every",
                                    "20",
                                    "--resume",
                                    "--out",
                                    (folder_ / "train.json").string(),
                                    "--format",
                                    "json",
                                    "--save",
                                    (folder_ / folder).string()};
  };
  const auto last = [&](const char* folder) { return folder_ / folder / "step-00000300.safetensors"; };
  int status = 0;
  waitpid(start(words("whole")), &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 0);

  const pid_t first = start(words("killed"));
  const auto one_is_there = [&] { return fs::exists(folder_ / "killed" / "step-00000020.safetensors"); };
  while (!one_is_there() && waitpid(first, nullptr, WNOHANG) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(first, SIGKILL);
  waitpid(first, nullptr, 0);
  ASSERT_FALSE(fs::exists(last("killed"))) << "the kill came too late to test anything";

  waitpid(start(words("killed")), &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_GT(Json::parse(text_of(folder_ / "train.json"))["rows"][0]["step"], 1) << "it went on, it did not start afresh";
  EXPECT_GT(fs::file_size(last("whole")), 100000u);
  EXPECT_TRUE(text_of(last("whole")) == text_of(last("killed")));
}

}  // namespace
}  // namespace headroom
