// `headroom memory model` as a user meets it: the account of a step, its phases, its times, and what its first line says.
#include <fstream>
#include <regex>

#include "gpu/device.h"
#include "tests/cli/model_program.h"

namespace headroom {
namespace {

// 8 x 89 GiB that wait in pinned memory were in a note; the first line said that it fits.
TEST_F(ModelProgram, TheAnswerSaysWhatTheHostHolds) {
  const auto first = [&](const std::string& command) { return answer(command)["answer"].get<std::string>(); };
  const std::string step = "memory model --model small --batch 8 --len 512 --device h100 --keep host ";
  EXPECT_TRUE(std::regex_search(first(step), std::regex(" of 78.4 GiB, and [0-9.]+ [GM]iB of host memory[.]"))) << first(step);
  const std::string two = first(step + "--gpus 2");
  EXPECT_TRUE(std::regex_search(two, std::regex(" of 78.4 GiB each, and [0-9.]+ [GM]iB of host memory for each[.]"))) << two;
  const std::string plan = first("plan --model small --batch 8 --len 512 --device h100 --keep host");
  EXPECT_NE(plan.find(" of host memory, in bf16"), std::string::npos) << plan;
  const std::string offloaded =
      first("memory model --as pytorch --model small --device h100 --precision bf16 --attention flash --adam offloaded");
  EXPECT_NE(offloaded.find(" of host memory"), std::string::npos) << offloaded;
  EXPECT_EQ(first("memory model --model small --len 64 --device h100").find("host"), std::string::npos);
}

// Qwen3-0.6B has 16 heads of 128, 8 key heads and width 1024: naming its own numbers took another size of a head, and 16 key heads.
TEST_F(ModelProgram, AModelsOwnSizesChangeNothing) {
  const std::string account = "memory model --device h100 --len 32 --batch 1 --model ";
  const auto params = [&](const std::string& model) { return answer(account + model)["rows"][0]["params"].get<std::int64_t>(); };
  const std::int64_t qwen = params("qwen3-0.6b");
  EXPECT_EQ(qwen, 596049920);
  EXPECT_EQ(params("qwen3-0.6b --heads 16"), qwen);
  EXPECT_EQ(params("qwen3-0.6b --width 1024"), qwen);
  EXPECT_EQ(answer(account + "8B --width 4096 --heads 32", 3)["rows"][0]["params"], 8125698048);
  EXPECT_NE(params("qwen3-0.6b --heads 8"), qwen);
  refused(account + "small --heads 7", 2, "--heads 7: they do not divide the width, which is 768");
  refused(account + "small --width 770", 2, "--width 770 is not a multiple of 12 heads; give --heads too");
}

TEST_F(ModelProgram, TheAccountAddsUpToThePeakAndSaysWhoseTensorsItCounts) {
  const Json j = answer("memory model --device h200 --precision fp32,bf16,fp8 --len 32,64" + small_model);
  ASSERT_EQ(j["rows"].size(), 6u);
  for (const Json& row : j["rows"]) {
    std::int64_t sum = 0;
    for (const Json& c : row["components"]) sum += c["at_peak_bytes"].get<std::int64_t>();
    EXPECT_EQ(sum, row["train_peak_bytes"]);
    EXPECT_LT(row["forward_peak_bytes"], row["forward_backward_peak_bytes"]);
    EXPECT_LT(row["forward_backward_peak_bytes"], row["train_peak_bytes"]);
    EXPECT_EQ(row["fits"], true);
  }
  EXPECT_NE(j["notes"].dump().find("Tensors for NVIDIA H200 are counted as these kernels take them"), std::string::npos) << j["notes"];
  const Json here = answer("memory model --device cpu --len 32" + small_model);
  EXPECT_EQ(here["notes"].dump().find("are counted"), std::string::npos) << "on the CPU there is nothing to say";
}

TEST_F(ModelProgram, MeasuringFindsWhatWasForecast) {
  const Json j = answer("memory model --device cpu --measure --len 16,32 --precision fp32,bf16" + small_model);
  ASSERT_EQ(j["measured"].size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(j["measured"][i]["ledger_peak_bytes"], j["rows"][i]["train_peak_bytes"]);
    EXPECT_EQ(j["measured"][i]["difference_bytes"], 0);
    EXPECT_TRUE(j["measured"][i]["unexplained_bytes"].is_number()) << j["measured"][i];
  }
  const Json attention = answer("memory attention --device cpu --measure --batch 2 --dim 32 --len 64,256");
  for (const Json& row : attention["rows"]) {
    EXPECT_EQ(row["measured_peak_bytes"], row["peak_bytes"]) << row;
    EXPECT_EQ(row["difference_bytes"], 0);
  }
}

TEST_F(ModelProgram, LearnedPositionsEndALength) {
  std::ofstream(folder_ / "gpt2.json") << R"({"model_type":"gpt2","vocab_size":97,"n_embd":64,"n_layer":2,"n_head":4,"n_positions":1024})";
  const std::string model = " --device h200 --model " + (folder_ / "gpt2.json").string();
  const Json training = answer("memory model --batch 1 --len 128" + model),
             inference = answer("memory model --phase inference --len 128" + model);
  EXPECT_EQ(training["edge"][0]["largest_len"], 1024);
  EXPECT_EQ(inference["edge"][0]["largest_len"], 1024);
  const Json few = answer("memory model --phase inference --batch 1 --len 128" + model)["rows"][0],
             many = answer("memory model --phase inference --batch 40 --len 128" + model)["rows"][0];
  EXPECT_EQ(many["prefill_peak_bytes"].get<std::int64_t>() - few["prefill_peak_bytes"].get<std::int64_t>(),
            many["cache_bytes"].get<std::int64_t>() - few["cache_bytes"].get<std::int64_t>())
      << "prompts are read one after another: only their caches add up";
  const Json plan = answer("plan --phase inference --batch 1 --len 100" + model);
  for (const Json& row : plan["rows"]) EXPECT_LE(row["len"].get<int>(), 1024);
  for (const char* command : {"memory model", "memory model --phase inference", "plan", "plan --phase inference"})
    refused(command + model + " --len 1025", 2, "len is 1025, and model gpt2 has 1024 learned positions");
}

// Where nothing is said: bf16 and flash attention on a GPU, FP32 on a CPU; the machine is the same for our step and for PyTorch's.
TEST_F(ModelProgram, WhatIsNotSaidIsUsual) {
  const auto row = [&](const std::string& more) { return answer("memory model --len 32 " + more + small_model)["rows"][0]; };
  EXPECT_EQ(row("--device h100")["precision"], "bf16");
  EXPECT_EQ(row("--device cpu")["precision"], "fp32");
  EXPECT_EQ(row("--device h100 --as pytorch"), row("--device h100 --as pytorch --precision bf16 --attention flash"));
  if (cuda_device_count() > 0) return;
  for (const std::string whose : {"", "--as pytorch "})
    for (const std::string command : {"plan ", "memory model "})
      EXPECT_EQ(answer(command + whose + small_model)["rows"], answer(command + whose + "--device h200 " + small_model)["rows"])
          << command << whose;
}

// Forward, forward and backward without an optimiser, and a step are three questions; the row says which was asked.
TEST_F(ModelProgram, EachPhaseOfAStepIsAskedByItself) {
  const std::string size = " --device cpu --len 32 --precision bf16" + small_model;
  const Json step = answer("step --phase forward,forward+backward,train --steps 1 --warmup 0 --threads 1" + size);
  std::int64_t before = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string phase = step["rows"][i]["phase"];
    SCOPED_TRACE(phase);
    const Json j = answer("memory model --phase " + phase + size), row = j["rows"][0];
    EXPECT_EQ(row["phase"], phase);
    const char* peaks[] = {"forward_peak_bytes", "forward_backward_peak_bytes", "train_peak_bytes"};
    for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(row.contains(peaks[k]) && row[peaks[k]].is_number(), k <= i) << peaks[k];
    std::int64_t sum = 0;
    for (const Json& c : row["components"]) sum += c["at_peak_bytes"].get<std::int64_t>();
    EXPECT_EQ(sum, row[peaks[i]]) << "of this phase's own peak";
    EXPECT_GT(row["needed_bytes"].get<std::int64_t>(), before);
    before = row["needed_bytes"];
    const Json plan = answer("plan --phase " + phase + " --most 1000" + size);
    bool found = false;
    for (const Json& p : plan["rows"]) {
      EXPECT_EQ(p["phase"], phase);
      found = found || (p["keep"] == "everything" && p["masters"] == "whole" && p["gradients"] == "whole" && p["micro_batches"] == 1 &&
                        p["update"] == "after" && p["attention"] == "flash" && p["peak_bytes"] == row[peaks[i]]);
    }
    EXPECT_TRUE(found) << plan["rows"].dump(1);
    if (phase == "train") continue;
    refused("memory model --measure --phase " + phase + size, 2, "--measure runs a training step");
    refused("memory model --update during --phase " + phase + size, 2, "has no update");
  }
  const Json torch =
      answer("plan --as pytorch --device h200 --batch 4 --len 64 --gpus 2 --precision bf16 --layers 2 --width 64 --heads 2 --vocab 100");
  ASSERT_EQ(torch["fp32_settings"], 32) << "two levels of keep, blocks compiled or not, two micro-batches, four shardings";
  EXPECT_EQ(torch["rows"][0]["compile"], "blocks");
  const Json same = answer(
      "memory model --as pytorch --device h200 --batch 2 --len 64 --gpus 2 --precision bf16 --attention flash --adam fused "
      "--compile blocks --layers 2 --width 64 --heads 2 --vocab 100")["rows"][0];
  EXPECT_EQ(torch["rows"][0]["peak_bytes"], same["train_peak_bytes"]);
  EXPECT_EQ(torch["rows"][0]["needed_bytes"], same["needed_bytes"]);
  EXPECT_EQ(run("plan --as pytorch --device h200 --memory 0.55 --model small --format json").code, 3);
  refused("plan --as pytorch --device h200 --masters halves --model small", 2, "leave --masters out");
  refused("plan --as pytorch --device h200 --gpus 3 --batch 4 --model small", 2, "does not divide");
  refused("plan --as pytorch --device cpu --model small", 2, "name a GPU");
  const auto pytorch = [&](const std::string& phase) {
    return answer("memory model --as pytorch --len 32 --phase " + phase + small_model)["rows"][0];
  };
  const Json forward = pytorch("forward"), both = pytorch("forward+backward"), train = pytorch("train");
  EXPECT_EQ(forward["phase"], "forward");
  EXPECT_FALSE(forward.contains("train_peak_bytes") && forward["train_peak_bytes"].is_number());
  EXPECT_LT(forward["needed_bytes"], both["needed_bytes"]);
  EXPECT_GE(train["forward_backward_peak_bytes"].get<std::int64_t>() - both["forward_backward_peak_bytes"].get<std::int64_t>(),
            8 * train["params"].get<std::int64_t>())
      << "no moments";
  refused("plan --phase forward --keep input" + size, 2, "leave --keep");
}

TEST_F(ModelProgram, BlocksInGroupsAreALevelLikeEveryOther) {
  const std::string narrow = " --width 64 --heads 2 --vocab 100 --batch 1 ";
  const Json j = answer("memory model --layers 6 --len 64 --keep input,groups,groups:2,groups:3:everything" + narrow);
  ASSERT_EQ(j["rows"].size(), 4u);
  EXPECT_EQ(j["rows"][1]["keep"], "groups:3") << "the root of 6 blocks, or a little more";
  EXPECT_EQ(j["rows"][2]["keep"], "groups:2");
  EXPECT_EQ(j["rows"][3]["keep"], "groups:3:everything");
  EXPECT_LT(j["rows"][1]["train_peak_bytes"], j["rows"][0]["train_peak_bytes"]);
  EXPECT_GT(j["rows"][1]["flops"], j["rows"][0]["flops"]);
  const Json step = answer("step --device cpu --layers 4 --keep groups --steps 1 --warmup 0 --len 16" + narrow);
  EXPECT_EQ(step["rows"].back()["peak_bytes"], step["rows"].back()["forecast_peak_bytes"]);
  EXPECT_EQ(step["rows"].back()["kept"], "groups:2");
  const Json plan = answer("plan --layers 4 --len 64 --most 1000 --precision fp32" + narrow);
  EXPECT_NE(plan["rows"].dump().find("\"groups:2\""), std::string::npos);
  refused("step --keep groups:1", 2, "groups:K");
  refused("step --keep groups:2:most", 2, "groups:K:LEVEL");
  refused("memory model --layers 4 --keep groups:9" + narrow, 2, "groups of 9 blocks");
}

TEST_F(ModelProgram, ATimeIsExpectedAndSaysWhatIsBehindIt) {
  const std::string size = " --model small --batch 4 --len 512 --precision bf16 ";
  const Json plan = answer("plan --device h200 --most 1" + size), row = plan["rows"][0];
  EXPECT_LT(row["ms_at_least"], row["ms"]);
  EXPECT_LT(row["ms_low"], row["ms"]);
  EXPECT_LT(row["ms"], row["ms_high"]);
  EXPECT_NE(plan["notes"].dump().find("ms is expected"), std::string::npos);
  const Json account = answer("memory model --device h200" + size)["rows"][0];
  EXPECT_NEAR(account["ms"].get<double>(), 4.90, 0.12 * 4.90) << "as recorded";
  EXPECT_EQ(row["ms_by"], "");
  const Json elsewhere = answer("plan --device a100 --most 1" + size)["rows"][0];
  EXPECT_GT(elsewhere["ms"], elsewhere["ms_at_least"]);
  EXPECT_GT(elsewhere["ms_high"].get<double>() / elsewhere["ms_low"].get<double>(), 2) << "no step of an A100 was measured";
  EXPECT_NE(elsewhere["ms_by"].get<std::string>().find("H200"), std::string::npos) << elsewhere["ms_by"];
  for (const char* others :
       {"h200 --keep host", "h200 --gpus 2", "h200 --gpus 2 --split-tokens", "h100 --gpus 4 --shard everything", "h100", "a100"}) {
    const Json step = answer("memory model" + size + "--device " + others)["rows"][0];
    double ms = 0;
    for (const Json& op : step["time"]) {
      if (op["ms"].is_null()) continue;
      ms += op["ms"].get<double>();
      EXPECT_GE(op["ms"], op["ms_at_least"]) << others << " " << op;
    }
    EXPECT_NEAR(ms, step["ms"].get<double>(), 1e-6 * ms) << others << ": where it goes adds up";
  }
  const Json counted = answer("memory model --device h200 --model mixtral-8x7b --batch 1 --len 64 --precision bf16", 3)["rows"][0];
  EXPECT_TRUE(counted["ms"].is_null());
  EXPECT_NE(counted["ms_by"].get<std::string>().find("counted"), std::string::npos) << counted["ms_by"];
}

TEST_F(ModelProgram, MemoryOfOneOfSeveralRanks) {
  const std::string model = "memory model --model small --batch 1 --len 256 --precision bf16 --device h200";
  const Json one = answer(model)["rows"][0], eight = answer(model + " --ranks 8 --shard everything")["rows"][0],
             split = answer(model + " --gpus 8 --shard everything --split-tokens")["rows"][0];
  EXPECT_LT(eight["train_peak_bytes"].get<double>(), 0.5 * one["train_peak_bytes"].get<double>());
  EXPECT_LT(split["train_peak_bytes"], eight["train_peak_bytes"]);
  EXPECT_GT(eight["link_bytes"], 0.0);
  EXPECT_EQ(one["link_bytes"], 0.0);
  EXPECT_GT(eight["needed_bytes"].get<double>() - eight["train_peak_bytes"].get<double>(),
            one["needed_bytes"].get<double>() - one["train_peak_bytes"].get<double>())
      << "what communication takes beside it";
  refused(model + " --shard everything", 2, "there is one rank");
  refused("memory model --device cpu --ranks 2 --measure", 2, "headroom step --ranks 2");
}

// What a card or a width is not served with is not advised, and refused only where it is asked for.
TEST_F(ModelProgram, GradientsThatAreNeverHeldAreAdvisedWhereTheyAreServed) {
  const std::string
      model = "memory model --layers 6 --width 512 --vocab 512 --batch 1 --len 128 --precision bf16 --masters halves --update during ",
      none = "--gradients none";
  EXPECT_NE(run(model + "--device h200").out.find(none), std::string::npos);
  for (const char* other : {"--device a100", "--device h200 --ffn 700"}) {
    const auto said = run(model + other);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.out.find(none), std::string::npos) << other;
    EXPECT_EQ(said.out.find("micro-batches of"), std::string::npos) << "an update during backward takes one";
    refused(std::string(model).append(other).append(" ").append(none), 1, "--gradients half");
  }
  const auto two = run(model + "--device h200 --gpus 2 --gradients half");
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(two.out.find(none), std::string::npos);
}

TEST_F(ModelProgram, Fp8IsForecastForACardAndSaysWhatItIs) {
  const Json plan = answer("plan --device h200 --model small --batch 4 --len 1024 --precision bf16,fp8 --attention flash");
  EXPECT_EQ(plan["rows"][0]["precision"], "bf16") << "quantising costs a narrow model more than products save";
  const Json wide = answer("plan --device h200 --model 2.7B --batch 4 --len 1024 --precision bf16,fp8 --attention flash --most 1");
  EXPECT_EQ(wide["rows"][0]["precision"], "fp8");
  EXPECT_NE(plan["notes"].dump().find("Its weights are quantised just before each use"), std::string::npos) << plan["notes"];
  const Json without = answer("plan --device b200 --model small --batch 4 --len 1024 --precision bf16,fp8 --attention flash");
  EXPECT_NE(without["notes"].dump().find("fp8 is left out: "), std::string::npos) << without["notes"];
  const Json j = answer("memory model --device h200 --model small --batch 4 --len 1024 --precision bf16,fp8");
  EXPECT_LT(j["rows"][1]["train_peak_bytes"], j["rows"][0]["train_peak_bytes"]);
  const Json step = answer("step --device cpu --precision fp8 --scales row --len 16 --steps 1 --warmup 0 --phase train" + small_model);
  EXPECT_EQ(step["rows"][0]["precision"], "fp8");
  EXPECT_EQ(step["rows"][0]["scales"], "row");
  EXPECT_EQ(step["rows"][0]["peak_bytes"], step["rows"][0]["forecast_peak_bytes"]);
  const Json profile = answer("profile step --device cpu --precision fp8 --len 16 --steps 1 --warmup 0 --phase train" + small_model);
  ASSERT_EQ(profile["quantised"].size(), 2u * 12);
  EXPECT_GT(profile["quantised"][0]["numbers"], 0);
}

}  // namespace
}  // namespace headroom
