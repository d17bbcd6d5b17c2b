// `headroom memory model --as pytorch` and the plan of it: its account, its edges, and what the first line advises.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "pytorch/language_model.h"
#include "tests/cli/model_program.h"

namespace headroom {
namespace {

TEST_F(ModelProgram, AsPyTorchIsTheAccountOfThatModel) {
  const Json j = answer(
      "memory model --as pytorch --kv-heads 1 --len 32,64 --precision bf16 --attention flash --adam fused --workspace-mib 8" + small_model);
  ASSERT_EQ(j["rows"].size(), 2u);
  pytorch::LanguageModel m;
  m.vocab = 100, m.width = 64, m.ffn = 256, m.layers = 2, m.heads = 2, m.kv_heads = 1, m.batch = 2, m.len = 64;
  m.precision = {DType::bf16}, m.fused_attention = true, m.adam = pytorch::Adam::fused;
  const auto a = account(m, 8u << 20, pytorch::Detail::components);
  EXPECT_EQ(j["rows"][1]["params"], a.params);
  EXPECT_EQ(j["rows"][1]["train_peak_bytes"], a.train_peak_bytes);
  EXPECT_EQ(j["rows"][1]["forward_peak_bytes"], a.forward_peak_bytes);
}

TEST_F(ModelProgram, AsPyTorchFindsEdgesAndWhatRemovesBytes) {
  const Json j = answer("memory model --as pytorch --model small --precision fp32 --attention plain --len 128,1024 --memory 24");
  ASSERT_EQ(j["edge"].size(), 2u);
  const auto fits = [&](std::int64_t len, int code) {
    const std::string asked = "memory model --as pytorch --model small --precision fp32 --attention plain --memory 24";
    const Json there = answer(fmt::format("{} --len {}", asked, len), code);
    EXPECT_EQ(there["rows"][0]["needed_bytes"].get<std::int64_t>() <= std::int64_t(24) << 30, code == 0);
    EXPECT_EQ(there["rows"][0]["fits"], code == 0);
  };
  const std::int64_t edge = j["edge"][1]["largest_len"];
  fits(edge, 0), fits(edge + 1, 3);
  ASSERT_GE(j["mitigations"].size(), 6u);
  EXPECT_EQ(j["mitigations"][0]["peak_bytes"], j["rows"][1]["train_peak_bytes"]);
  for (const Json& row : j["mitigations"])
    EXPECT_EQ(row["peak_bytes"].get<std::int64_t>() + row["saves_bytes"].get<std::int64_t>(), j["rows"][1]["train_peak_bytes"]);
}

// What the first line advises is a command that the program takes, and with which the step fits.
TEST_F(ModelProgram, WhatTheAccountAdvisesIsACommandThatFits) {
  const auto found = [](const std::string& text, const char* pattern) {
    std::smatch m;
    return std::regex_search(text, m, std::regex(pattern)) ? m.str(1) : "";
  };
  const std::string of_gpus[] = {
      "memory model --as pytorch --model qwen3-30b-a3b --device h100 --gpus 8 --zero 2",
      "memory model --as pytorch --model llama-3.1-8b --device 4090 --gpus 8 --zero 2",
      "memory model --as pytorch --model llama-3.1-8b --device 4090 --batch 2 --gpus 2 --lora 16 --memory 14",
      "memory model --as pytorch --model llama-3.1-8b --device 4090 --batch 8 --adam muon --memory 20",
      "memory model --as pytorch --model llama-3.2-1b --device 4090 --batch 8 --lora 8 --parameters half --attention eager --memory 4"};
  for (const std::string& asked : of_gpus) {
    const Json j = answer(asked, 3);
    const std::string line = j["answer"], command = found(j["notes"].dump(), "least that would fit, one by one: headroom ([^\"]*)\"");
    ASSERT_NE(command, "") << asked << "\n" << j["notes"];
    const Json there = answer(command);
    EXPECT_EQ(there["rows"][0]["fits"], true) << command;
    const std::string needs = found(line, "Least that would fit: .*?: ([0-9.]+ GiB)\\.");
    EXPECT_NE(there["answer"].get<std::string>().find(": " + needs + " of "), std::string::npos) << line << "\n" << there["answer"];
  }
  const std::string adapted = "memory model --as pytorch --model gpt-oss-20b --device h100 --lora 16 --attention plain";
  const std::string sharded = found(answer(adapted, 3)["answer"], "As it is it takes [0-9]+ such GPUs \\(([^)]*)\\)");
  EXPECT_EQ(answer(adapted + " " + sharded)["rows"][0]["fits"], true) << sharded;
}

// Where no way fits the first line says what else would: more GPUs, a shorter length, or a larger card.
TEST_F(ModelProgram, WhereNothingFitsTheFirstLineSaysWhatWould) {
  const auto last_advice = [](const Json& j) {
    std::smatch m;
    const std::string line = j["answer"];
    return std::regex_search(line, m, std::regex("\\(([^()]*)\\)\\.$")) ? m.str(1) : "";
  };
  const std::string plan = "plan --as pytorch --most 1 --batch ";
  const Json far = answer(plan + "1 --model llama-3.1-8b --device 4090 --len 1000000", 3);
  ASSERT_EQ(last_advice(far).find("--len "), 0u) << far["answer"];
  EXPECT_EQ(answer(plan + "1 --model llama-3.1-8b --device 4090 " + last_advice(far))["fits"], true) << last_advice(far);
  const Json large = answer(plan + "8 --model llama-3.1-405b --gpus 8 --device 4090", 3);
  ASSERT_EQ(last_advice(large).find("--device "), 0u) << large["answer"];
  EXPECT_EQ(answer(plan + "8 --model llama-3.1-405b --gpus 8 " + last_advice(large))["fits"], true) << last_advice(large);
  const std::string packed =
      "memory model --as pytorch --model llama-3.1-70b --lora 16 --base 4bit --parameters half --batch 1 --len 512 --device 4090";
  const Json more = answer(packed + " --gpus 2 --zero 3", 3);
  EXPECT_EQ(last_advice(more), "--gpus 4 --shard everything") << more["answer"];
  EXPECT_EQ(answer(packed + " --keep input --adam 8bit " + last_advice(more))["rows"][0]["fits"], true);
}

TEST_F(ModelProgram, ThePlanAsPyTorchTakesTheAttentionThatIsAsked) {
  const std::string model = " --as pytorch --model llama-3.2-1b --device 4090 --len 2048 ";
  const Json plain = answer("plan --most 1 --batch 2 --attention eager" + model), usual = answer("plan --most 1 --batch 2" + model);
  EXPECT_NE(plain["notes"].dump().find("attention plain"), std::string::npos) << plain["notes"];
  EXPECT_GT(plain["rows"][0]["peak_bytes"], usual["rows"][0]["peak_bytes"]);
  for (const Json& way : plain["ways"]) {
    const Json account = answer("memory model --precision bf16 --attention plain " + way["with"].get<std::string>() + model);
    EXPECT_EQ(account["rows"][0]["needed_bytes"], way["needed_bytes"]) << way;
  }
}

// A command that the program prints names the model as it was named: its folder, in quotes where a shell needs them, and its sizes.
TEST_F(ModelProgram, CommandsThatArePrintedNameTheModelThatWasAsked) {
  const std::filesystem::path folder = std::filesystem::path(db_).parent_path() / "my model's";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
    "hidden_act": "silu", "tie_word_embeddings": false})";
  const std::string in_quotes = "'" + std::regex_replace(folder.string(), std::regex("'"), "'\\''") + "'";
  for (const std::string& model : {in_quotes, std::string("small --layers 2 --vocab 1000")}) {
    const Json plan = answer("plan --as pytorch --most 1 --device 4090 --model " + model);
    std::string command;
    for (const Json& note : plan["notes"])
      if (const std::string words = note; words.starts_with("Its bytes, one by one: headroom ")) command = words.substr(32);
    ASSERT_NE(command, "") << plan["notes"];
    EXPECT_EQ(answer(command)["rows"][0]["needed_bytes"], plan["ways"][0]["needed_bytes"]) << command;
  }
}

}  // namespace
}  // namespace headroom
