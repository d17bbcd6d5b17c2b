// `headroom memory model` as a user meets it: the account, its edges, its times, and what is refused.
#include <filesystem>
#include <fstream>
#include <regex>

#include "gpu/device.h"
#include "pytorch/language_model.h"
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

TEST_F(ModelProgram, ACardThatIsNotHereIsForecastNotMeasured) {
  for (const std::string what : {"model --model small", "attention --len 128"})
    refused("memory " + what + " --measure --device h100", 2, "leave --measure out for the forecast, or name cpu or cuda");
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

TEST_F(ModelProgram, BadInputGetsOneLine) {
  refused("memory model --model nosuch", 2, "small, medium, large, xl, 2.7B, xl-2026, 10B, 8B");
  refused("memory model --width 100", 2, "not a multiple of 12 heads");
  refused("memory model --batch 1000000 --len 1000000", 2, "2^31");
  refused("serve --model llama-3.1-8b", 2, "headroom memory model --phase inference");
  refused("plan --model small --nodes 2", 2, "--gpus counts the GPUs of all hosts");
  refused("memory model --as pytorch --model small --deepspeed 2", 2, "ZeRO-2 gradients");
  refused("train --file x", 2, "--text FILE is what it learns");
  refused("report 1 -o x.html", 2, "--out FILE writes to a file");
  refused("memory model --len 1M", 2, "'1M' is 1000000 to some and 1048576 to others");
  refused("memory model --as pytorch --qlora 16", 2, "QLoRA is --lora RANK --base 4bit");
  refused("plan --as pytorch --model small --zero 1", 2, "plan tries what it can be");
  refused("plan --as pytorch --model small --qlora 16", 2, "plan tries what it can be");
  refused("plan --as pytorch --model gpt-oss-20b --attention sdpa --device h100", 1, "choose --attention plain");
  refused("memory model --keep all", 2, "no-attention-inputs");
  refused("memory model --keep groups:1", 2, "K is 2 or more");
  refused("memory model --keep groups:two", 2, "K is 2 or more");
  refused("memory model --keep groups:3:most", 2, "LEVEL one of everything, no-product");
  refused("memory model --keep host:0", 2, "N is 1 or more");
  refused("memory model --softmax composed --adam fused", 2, "--softmax, --adam: only with --as pytorch");
  refused("memory attention --upstream sum", 2, "--upstream: only with --as pytorch");
  if (cuda_device_count() == 0) {
    const std::string here = answer("memory attention --len 1024 --memory 24")["answer"];
    EXPECT_TRUE(here.starts_with("On a GPU of 24.0 GiB (else as an NVIDIA H200): ")) << here;
  }
  for (const std::string serving : {"memory model --phase inference", "plan --phase inference"}) {
    refused(serving + " --keep input --masters halves", 2, "has no backward pass; leave --keep, --masters out");
    refused(serving + " --moments half", 2, "leave --moments out");
    refused(serving + " --logits half", 2, "leave --logits out");
    refused(serving + " --attention plain,flash", 2, "takes one --attention; 2 were given");
  }
  refused("memory model --phase inference --device h200 --gpus 2 --shard optimizer", 2, "by tensor parallelism; leave --shard out");
  refused("plan --phase forward --device h200 --update during", 2, "--phase forward has no such choice; leave --update out");
  refused("memory model --as pytorch --keep no-cheap", 2, "choose from everything, input");
  refused("memory model --as pytorch --keep host:2:input", 2, "choose from everything, input");
  refused("memory model --as pytorch --masters halves", 2, "leave --masters out");
  refused("memory model --as pytorch --gpus 2 --shard optimizer --adam muon", 2, "leave --shard and --optimizer-in-backward out");
  refused("memory model --as pytorch --model mixtral-8x7b --attention flash --lora 8 --base 4bit", 1, "leave --base 4bit out");
  refused("memory model --as pytorch --model gpt-oss-20b --attention flash", 1, "choose --attention plain");
  refused("memory model --as pytorch --shard everything", 2, "name --gpus");
  refused("memory model --as pytorch --gpus 2 --lora 8 --shard everything", 2, "add --parameters half");
  refused("memory model --as pytorch --gpus 2 --shard everything --keep groups:2", 2, "choose --keep everything or input");
  refused("memory model --as pytorch --compile model --attention flash --keep input", 2, "choose --compile blocks");
  refused("memory model --as pytorch --compile blocks --attention plain", 2, "with --attention flash");
  refused("memory model --lora 8", 2, "--lora: only with --as pytorch");
  refused("memory model --as pytorch --device cpu", 2, "name a GPU");
  refused("memory model --device cpu --precision tf32", 2, "name a GPU");
  refused("memory model --precision bf16 --scales row", 2, "only fp8 has scales");
  refused("memory model --precision fp8 --scales rows", 2, "tensor, row, block");
  refused("memory model --device a100 --precision fp8", 1, "sm_80) multiplies no fp8");
  refused("memory model --device h200 --precision fp8 --width 120 --heads 3", 2, "the width is 120; fp8 on a GPU needs a multiple of 16");
  refused("memory model --device h200 --precision fp8 --phase inference", 1, "counted in fp32, tf32, bf16 and fp16");
  refused("plan --precision bf16 --scales row", 2, "only fp8 has scales");
  refused("step --scales row", 2, "only fp8 has scales");
  for (const char* study : {"memory model", "plan", "step"})
    refused(study + std::string(" --precision bf16 --copies made,kept"), 2, "only fp8 has 8-bit copies of weights");
  refused("memory model --precision fp8 --copies keep", 2, "made, kept");
  refused("memory model --device h200 --precision fp8 --ranks 2 --copies kept", 2, "one rank; fp8 on 2 was asked");
  refused("train --text x --precision bf16 --copies kept", 2, "bf16 on 1 was asked");
  refused("train --text x --precision bf16 --scales row", 2, "only fp8 has scales");
  refused("train --text x --precision fp8 --switch-precision", 2, "it is of --resume");
  refused("plan --device cpu --precision fp32,tf32", 2, "name a GPU");
  refused("plan --device cpu --gpus 2", 2, "name a GPU");
  refused("plan --device cpu --keep host", 2, "a CPU's own memory is the host's");
  refused("plan --device b200 --keep host:input", 2, "have nothing to move to the host");
  refused("plan --device h200 --batch 4 --gpus 3", 2, "make it a multiple");
  refused("plan --device h200 --gpus 0", 2, "--gpus");
  refused("plan --memory 0", 2, "GiB");
  refused("plan --device h2000", 2, "h200");
  refused("step --steps 0", 2, "--steps");
  refused("step --device h200", 2, "choose from cpu, cuda");
  refused("train", 2, "--text FILE");
  refused("train --text /no/such/file", 2, "cannot be opened");
  refused("train --text x --lr nan", 2, "--lr");
  refused("train --text x --resume", 2, "--save");
  refused("train --text x --init " + folder_.string(), 2, "no config.json");
  refused("train --tokens x --prompt hello", 2, "--prompt");
  refused("memory model --measure --device h200", 2,
          "there is no h200 in this machine; leave --measure out for the forecast, or name cpu or cuda");
  refused("memory attention --measure --device h200", 2, "there is no NVIDIA H200 in this machine");
  refused("memory model --measure --as pytorch", 2, "leave --as pytorch out");
  refused("memory attention --measure --as pytorch", 2, "leave --as pytorch out");
  refused("memory model --as pytorch --workspace-mib nan", 2, "--workspace-mib");
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

// Latents are not divided by heads: a server gives each GPU other sequences.
TEST_F(ModelProgram, LatentsAreDividedBySequences) {
  const std::string asked =
      "memory model --phase inference --model deepseek-v3 --gpus 8 --device h200 --batch 128 --len 16384 --chunk 2048 ";
  const Json heads = answer(asked, 3), sequences = answer(asked + "--attention-by sequences");
  EXPECT_EQ(heads["rows"][0]["cache_bytes"].get<std::int64_t>(), 8 * sequences["rows"][0]["cache_bytes"].get<std::int64_t>());
  EXPECT_EQ(sequences["rows"][0]["attention_by"], "sequences");
  EXPECT_NE(heads["answer"].get<std::string>().find("Least that would fit: --attention-by sequences: "), std::string::npos)
      << heads["answer"];
  EXPECT_NE(heads["answer"].get<std::string>().find("(--gpus 8 --attention-by sequences)"), std::string::npos) << heads["answer"];
  EXPECT_GT(sequences["rows"][0]["tokens_per_s_at_most"], heads["rows"][0]["tokens_per_s_at_most"]);
  for (const char* command : {"memory model", "plan"})
    refused(command + std::string(" --phase inference --model deepseek-v3 --device h200 --batch 1 --attention-by sequences"), 2,
            "say with --gpus");
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

// Weights as the checkpoint has them, the cache, several GPUs; the first line answers.
TEST_F(ModelProgram, AModelThatAnswersIsHeldAsItIsServed) {
  const std::string model = "memory model --phase inference --model gpt-oss-20b --device 4090 --len 4096 ";
  const Json j = answer(model + "--batch 8"), whole = answer(model + "--batch 8 --weights precision", 3);
  EXPECT_EQ(j["answer"].get<std::string>().find("Fits on NVIDIA GeForce RTX 4090: "), 0u) << j["answer"];
  EXPECT_NE(j["answer"].get<std::string>().find("at most"), std::string::npos) << "a bound that says so: " << j["answer"];
  EXPECT_EQ(j["rows"][0]["weights"], "mxfp4");
  EXPECT_NE(whole["answer"].get<std::string>().find("Least that would fit: "), std::string::npos) << whole["answer"];
  EXPECT_NE(whole["answer"].get<std::string>().find("it takes 2 such GPUs"), std::string::npos) << whole["answer"];
  EXPECT_EQ(answer(model + "--batch 8 --weights precision --gpus 2")["rows"][0]["gpus"], 2);
  const Json eight = answer(model + "--batch 8 --cache fp8");
  EXPECT_EQ(2 * eight["rows"][0]["cache_bytes"].get<std::int64_t>(), j["rows"][0]["cache_bytes"].get<std::int64_t>());
  EXPECT_GT(eight["rows"][0]["tokens_per_s_at_most"], j["rows"][0]["tokens_per_s_at_most"]);
  // A bound where layers have windows: all that is held is read once, and what passes between the layers a few times.
  const Json windows = answer("memory model --phase inference --model gemma-3-4b --device 4090 --batch 8 --len 32768")["rows"][0];
  EXPECT_LT(windows["decode_ms_at_least"].get<double>(), 1.02 * windows["decode_peak_bytes"].get<double>() / 1.008e12 * 1e3);
  const Json latent = answer("memory model --phase inference --model deepseek-v3 --gpus 8 --device h200 --batch 1 --len 4096")["rows"][0];
  // Arithmetic by hand of a GPU's share: in 8 bits an eighth of 37.6e9 active weights and the products down, whole on every GPU; an eighth
  // of the head in 16; 4096 latents. The sums of 61 · 2 halves and what passes between the layers are little.
  const double down = 61 * 7168.0 * (1536 + 576), head = 129280.0 * 7168,
               read = (37.55e9 - down - 2 * head) / 8 + down + head / 4 + 4096 * 70272.0;
  EXPECT_NEAR(latent["decode_ms_at_least"].get<double>(), read / (1.15 * 4.19e12) * 1e3, 0.1) << latent;
  EXPECT_LT(latent["decode_ms_at_least"].get<double>(), read / 4.49e12 * 1e3)
      << "what our kernel has read on an H200 (docs/attention.md, decoding)";
  // Products of 8-bit weights at the card's ceiling of 8 bits (1979 TFLOP/s), of 4-bit weights in bf16 (789): a bound is one for both.
  const auto prefill = [&](const std::string& more) {
    return answer("memory model --phase inference --model llama-3.1-8b --device h100 --batch 1 --len 4096 " +
                  more)["rows"][0]["prefill_ms_at_least"]
        .get<double>();
  };
  const double products = 2 * 6.98e9 * 4096, halves = products / 789e12 * 1e3, eighths = products / 1978.9e12 * 1e3;
  EXPECT_NEAR(prefill("--weights int4") - prefill("--weights fp8"), halves - eighths, 0.03 * halves);
  EXPECT_LT(prefill("--weights fp8 --cache fp8"), prefill("--weights fp8"));
  const Json plan = answer("plan --phase inference --model llama-3.1-8b --weights int4 --batch 16 --len 8192 --device 4090");
  EXPECT_EQ(plan["fits"], true);
  EXPECT_NE(plan["answer"].get<std::string>().find("sequences of 8192 tokens at once"), std::string::npos) << plan["answer"];
  refused("memory model --weights int4", 2, "only with --phase inference");
  refused("plan --page 16", 2, "only with --phase inference");
  refused("memory model --phase inference --model llama-3.1-8b --gpus 3", 2, "do not divide by 3");
}

// Forward, forward and backward without an optimiser, and a step are three questions; the row says which was asked.
TEST_F(ModelProgram, WhatIsServedIsAPictureOfItsBytes) {
  const std::string asked = "memory model --phase inference --model llama-3.1-8b --device 4090 --batch 1,4 --len 4096 ";
  const std::filesystem::path page = std::filesystem::path(db_).parent_path() / "serving.html";
  ASSERT_EQ(run(asked + "--out " + page.string() + " --db " + db_).code, 0);
  std::ifstream file(page);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_LT(text.find("Bytes of inference by kind"), text.find("largest_batch")) << "the picture comes first";
  const std::string said = run(asked + " --db " + db_).out;
  for (const char* bar : {"bf16 batch 1 len 4096  ", "bf16 batch 4 len 4096  ", "█ weights  ▓ cache"})
    EXPECT_NE(said.find(bar), std::string::npos) << bar << said;
  const Json answered = answer(asked);  // outlives the loop
  for (const Json& row : answered["rows"])
    EXPECT_NE(said.find(fmt::format("  {}\n", bytes_in_words(row["needed_bytes"].get<double>()))), std::string::npos)
        << row << ": the kinds add up\n"
        << said;
}

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
