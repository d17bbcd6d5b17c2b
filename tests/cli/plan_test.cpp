// `headroom plan` as a user meets it: what fits, what each setting costs, and the ways to share a step.
#include <fmt/format.h>

#include <map>
#include <regex>
#include <set>

#include "base/text.h"
#include "tests/cli/model_program.h"

namespace headroom {
namespace {

TEST_F(ModelProgram, ThePlanOfAModelThatFitsIsFastestFirst) {
  const Json j = answer("plan --model 2.7B --device h200 --most 10000");
  EXPECT_EQ(j["fits"], true);
  ASSERT_EQ(j["rows"].size(), j["settings_that_fit"].get<std::size_t>());
  std::int64_t least = j["rows"][0]["peak_bytes"];
  for (std::size_t i = 1; i < j["rows"].size(); ++i) {
    EXPECT_LE(j["rows"][i - 1]["ms"], j["rows"][i]["ms"]);
    EXPECT_LE(j["rows"][i]["needed_bytes"], j["memory_bytes"]);
    EXPECT_LT(j["rows"][i]["peak_bytes"], j["rows"][i]["needed_bytes"]);
    least = std::min(least, j["rows"][i]["peak_bytes"].get<std::int64_t>());
  }
  const Json small = answer("plan --model 2.7B --device h200 --memory 3", 3);
  EXPECT_EQ(small["fits"], false);
  ASSERT_EQ(small["rows"].size(), 1u) << "the nearest";
  EXPECT_EQ(small["rows"][0]["peak_bytes"], least);
  const std::string answer_in_a_line = small["answer"];
  EXPECT_EQ(answer_in_a_line.find("Does not fit on NVIDIA H200: it needs "), 0u) << answer_in_a_line;
  EXPECT_EQ(j["answer"].get<std::string>().find("Fits on NVIDIA H200: "), 0u) << j["answer"];
  EXPECT_NE(run("plan --help").out.find("Settings are ordered by ms, "), std::string::npos);
}

// A plan is asked with the batch of all GPUs, an account and a run with that of each; help says whose it is.
TEST_F(ModelProgram, HelpSaysWhoseBatchItIs) {
  const std::string sizes = " --model small --len 256 --device h100 --gpus 2 --precision bf16 ";
  const Json plan = answer("plan --batch 4 --keep everything --attention flash" + sizes);
  const Json& row = plan["rows"][0];
  ASSERT_EQ(row["micro_batches"], 1);
  const Json account =
      answer(fmt::format("memory model --batch 2 --shard {} --masters {} --gradients {} --update {}", row["sharding"].get<std::string>(),
                         row["masters"].get<std::string>(), row["gradients"].get<std::string>(), row["update"].get<std::string>()) +
             sizes);
  EXPECT_EQ(account["rows"][0]["needed_bytes"], row["needed_bytes"]);
  const auto help = [&](const std::string& command) { return std::regex_replace(run(command + " --help").out, std::regex("\\s+"), " "); };
  EXPECT_NE(help("plan").find("Sequences of a step, of all GPUs together"), std::string::npos);
  EXPECT_NE(help("memory model").find("Sequences; of each GPU where there are several"), std::string::npos);
  EXPECT_NE(help("step").find("Sequences; of each rank where there are several"), std::string::npos);
  EXPECT_NE(help("train").find("Sequences of a micro-batch; of each rank where there are several"), std::string::npos);
}

TEST_F(ModelProgram, OfSettingsAsFastTheAnswerNamesOneThatCopiesNothingToTheHost) {
  // The link bounds them all: 128 GPUs gather 70B for a sequence of 256 tokens each.
  const Json j = answer(
      "plan --model llama-3.1-70b --device h100 --gpus 128 --batch 128 --len 256 --precision bf16 --masters halves --gradients half "
      "--update during --keep everything,no-product,host --most 1000");
  const std::string said = j["answer"];
  const double fastest = j["rows"][0]["ms"];
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
  bool host = false;
  for (const Json& row : j["rows"]) {
    if (row["ms"].get<double>() > 1.001 * fastest) continue;
    host = host || row["host_bytes"] > 0;
    if (row["host_bytes"] == 0) smallest = std::min(smallest, row["needed_bytes"].get<std::int64_t>());
  }
  ASSERT_TRUE(host && smallest < std::numeric_limits<std::int64_t>::max()) << "both kinds are as fast";
  EXPECT_EQ(said.find("keep host"), std::string::npos) << said;
  EXPECT_EQ(said.find("attention plain"), std::string::npos) << said;
}

TEST_F(ModelProgram, GpusWithoutABatchTakeASequenceEach) {
  const std::string eight = "plan --as pytorch --model llama-3.1-8b --device h100 --precision bf16 --gpus 8";
  EXPECT_EQ(answer(eight)["rows"], answer(eight + " --batch 8")["rows"]);
  refused(eight + " --batch 4", 2, "make it a multiple, as --batch 8");
  refused(eight + " --batch 12", 2, "make it a multiple, as --batch 16");
  const std::string ours = "plan --model small --device h200 --precision bf16 --attention flash --keep input --gpus ";
  EXPECT_EQ(answer(ours + "8")["rows"], answer(ours + "8 --batch 8")["rows"]);
  EXPECT_EQ(answer(ours + "2")["rows"], answer(ours + "2 --batch 4")["rows"]) << "4 are shared out";
}

TEST_F(ModelProgram, TheHelpOfAModelsCommandsIsInGroups) {
  for (const char* command : {"plan", "step", "memory model", "profile step"}) {
    const std::string help = run(std::string(command) + " --help").out;
    for (const char* title : {"\nModel:\n", "\nThe step:\n", "\nPrecision and memory:\n", "\nGPUs and processes:\n"})
      EXPECT_NE(help.find(title), std::string::npos) << command << title << help;
    const auto from = help.find("\nOptions:\n");
    EXPECT_EQ(help.substr(from, help.find("\n\n", from + 1) - from).find("--batch"), std::string::npos) << command;
  }
}

TEST_F(ModelProgram, WhereSeveralGpusAreTooFewItSaysHowManyWouldDo) {
  const auto said = [&](const std::string& words) { return answer(words, 3)["answer"].get<std::string>(); };
  const std::string serving = "memory model --phase inference --model llama-3.1-70b --device h100 --batch 32 --len 8192 --gpus ";
  EXPECT_NE(said(serving + "2").find("As it is it takes 4 such GPUs (--gpus 4)."), std::string::npos);
  EXPECT_EQ(answer(serving + "4")["rows"][0]["fits"], true);
  const std::string as_pytorch = "plan --as pytorch --model llama-3.1-70b --len 2048 --device 4090 --memory 24 --gpus ";
  EXPECT_NE(said(as_pytorch + "2 --batch 2")
                .find("All parameters, FP32, AdamW, takes 256 such GPUs with a sequence each: --gpus 256 --batch 256."),
            std::string::npos)
      << said(as_pytorch + "2 --batch 2");
  EXPECT_EQ(answer(as_pytorch + "256 --batch 256")["fits"], true);
}

TEST_F(ModelProgram, ThePlanTriesEveryLeverAndTheAccountAgrees) {
  const Json j = answer("plan --model 2.7B --batch 1 --len 1024 --device h200 --memory 40 --precision bf16");
  EXPECT_EQ(j["rows"][0]["keep"], "input");
  EXPECT_EQ(j["rows"][0]["masters"], "halves");
  EXPECT_EQ(j["rows"][0]["gradients"], "half");
  EXPECT_EQ(j["rows"][0]["update"], "during");
  const Json account = answer(
      "memory model --model 2.7B --batch 1 --len 1024 --device h200 --memory 40 --precision bf16 --keep input --masters halves "
      "--gradients half --update during");
  EXPECT_EQ(account["rows"][0]["train_peak_bytes"], j["rows"][0]["peak_bytes"]);
  EXPECT_EQ(account["rows"][0]["needed_bytes"], j["rows"][0]["needed_bytes"]);
  EXPECT_EQ(account["rows"][0]["fits"], true);
  const Json clipped = answer("plan --model 2.7B --batch 1 --len 1024 --device h200 --memory 40 --precision bf16 --update after", 3);
  EXPECT_EQ(clipped["rows"][0]["update"], "after");
  refused("plan --update before", 2, "after");
}

TEST_F(ModelProgram, WhatDoesNotFitIsCodeThree) {
  answer("memory model --device h100 --memory 0.7 --len 16" + small_model, 3);
  answer("memory model --device h100 --memory 1.7 --len 16" + small_model, 0);
  answer("memory model --as pytorch --device h200 --memory 1 --len 16" + small_model, 0);
  answer("memory model --as pytorch --memory 1.7 --len 16" + small_model, 0);  // no card is named: a reserve is counted beside
  answer("memory model --as pytorch --memory 0.3 --len 16" + small_model, 3);
  const Json attention = answer("memory attention --len 65536 --variant plain --memory 1", 3);
  EXPECT_EQ(attention["rows"][0]["status"], "oom");
  answer("memory attention --len 1024,65536 --variant plain,flash --memory 3", 0);
  answer("plan --memory 0.5 --device h100" + small_model, 3);
}

TEST_F(ModelProgram, ThePlanForSeveralGpusTriesEverySharding) {
  const Json j = answer("plan --model 8B --batch 8 --len 1024 --gpus 8 --device h100 --precision bf16 --attention flash --most 100");
  std::set<std::string> shardings;
  for (const Json& row : j["rows"]) {
    shardings.insert(row["sharding"]);
    EXPECT_GT(row["link_ms_at_least"], 0.0);
    EXPECT_LT(row["link_ms_at_least"], row["ms_at_least"]);
    EXPECT_GT(row["link_bytes"], 0.0);
  }
  EXPECT_FALSE(shardings.contains("none")) << "16 bytes for each of 8 billion weights do not fit a card";
  EXPECT_TRUE(shardings.contains("everything"));
}

// A model that is said layer by layer (its positions are scaled) is divided as one that is not.
TEST_F(ModelProgram, WaysToShareAStepDivideEveryModel) {
  const auto ways = [&](const std::string& name, const std::string& more) {
    const std::string file = (folder_ / (name + ".json")).string();
    std::ofstream(file) << R"({"model_type":"llama","vocab_size":1000,"hidden_size":128,"intermediate_size":256,"num_hidden_layers":4,)"
                        << R"("num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":64)" << more << "}";
    const Json j = answer("plan --batch 8 --len 64 --gpus 2 --device h100 --precision bf16 --model " + file);
    std::map<std::string, Json> all;
    for (const Json& row : j["ways"]) all[row["way"]] = row;
    return all;
  };
  auto plain = ways("plain", ""), scaled = ways("scaled", R"(,"rope_scaling":{"rope_type":"linear","factor":2.0})");
  EXPECT_EQ(plain.size(), 6u) << "replicas, three shardings, tensor and pipeline parallel";
  for (const auto& [way, row] : plain)
    for (const char* field : {"peak_bytes", "link_bytes", "fits"}) EXPECT_EQ(scaled[way][field], row[field]) << way << " " << field;
  EXPECT_LT(plain["tensor parallel"]["peak_bytes"], plain["replicas"]["peak_bytes"]);
  const Json narrow = answer("plan --batch 8 --len 64 --gpus 2 --device h200 --precision fp8 --width 64 --heads 4 --ffn 48 --layers 2");
  for (const Json& row : narrow["ways"])
    if (row["way"] == "tensor parallel") {
      EXPECT_NE(row["why_not"].get<std::string>().find("needs a multiple of 16"), std::string::npos) << row;
    }
}

TEST_F(ModelProgram, ThePlanSaysWhyTwoShardingsAreAlike) {
  const std::string sharing =
      "plan --model small --batch 8 --len 256 --gpus 8 --device h100 --precision bf16 --keep everything --attention flash";
  const char* alike = "ZeRO-1 and ZeRO-2 are alike here";
  EXPECT_NE(run(sharing + " --update during").out.find(alike), std::string::npos);
  EXPECT_EQ(run(sharing + " --update after").out.find(alike), std::string::npos) << "gradients wait";
}

TEST_F(ModelProgram, ThePlanRefusesBeforeItMeasures) {
  refused("plan --device cpu --db " + db_ + " --phase forward --gradients half", 2, "gradients in half need bf16");
  refused("plan --device cpu --db " + db_ + " --keep groups:1", 2, "K is 2 or more");
  const Ended e = run("plan --device cpu --layers 1 --width 64 --heads 1 --vocab 100 --len 8 --db " + db_);
  EXPECT_EQ(e.code, 0);
  EXPECT_NE(e.err.find("measuring the ceilings of"), std::string::npos) << "what takes the seconds";
}

TEST_F(ModelProgram, ThePlanHoldsTheWaysToShareAStepAgainstEachOther) {
  for (const int gpus : {2, 8, 64}) {
    const std::string n = std::to_string(gpus);
    const Json j = answer("plan --model 2.7B --batch " + n + " --len 1024 --gpus " + n +
                          " --device h100 --precision bf16 --attention flash --masters halves --gradients half --keep everything,input");
    std::map<std::string, Json> ways;
    for (const Json& row : j["ways"]) ways[row["way"].get<std::string>().substr(0, 8)] = row;
    for (const char* way : {"replicas", "ZeRO-1 (", "ZeRO-3 (", "context ", "tensor p", "pipeline"}) {
      ASSERT_TRUE(ways.contains(way)) << way;
      EXPECT_EQ(ways[way]["runs"], std::string(way) != "tensor p" && std::string(way) != "pipeline") << way;
    }
    if (gpus == 64) {  // 32 heads
      EXPECT_NE(ways["tensor p"]["why_not"].get<std::string>().find("do not divide by 64"), std::string::npos);
      EXPECT_NE(ways["pipeline"]["why_not"].get<std::string>().find("make no 64 stages"), std::string::npos);
      continue;
    }
    const Json &tensor = ways["tensor p"], &pipeline = ways["pipeline"];
    // Four all-reduces of the residual stream: 2560 wide, bf16, of every token.
    EXPECT_NEAR(tensor["bytes_a_layer"].get<double>(), 8.0 * (gpus - 1) / gpus * gpus * 1024 * 2560 * 2,
                1e-6 * tensor["bytes_a_layer"].get<double>());
    EXPECT_NEAR(tensor["exposed_ms"].get<double>(), tensor["link_bytes"].get<double>() / 284e9 * 1e3, 1e-6) << "nothing covers it";
    EXPECT_GT(pipeline["bubble"], 0.0);
    EXPECT_LT(pipeline["link_bytes"], tensor["link_bytes"]);
    EXPECT_LT(ways["ZeRO-3 ("]["peak_bytes"], ways["replicas"]["peak_bytes"]);
    for (const auto& [name, way] : ways) EXPECT_GT(way["ms_at_least"], 0.0) << name;
  }
}

TEST_F(ModelProgram, ABatchSmallerThanTheGpusSplitsItsTokens) {
  const Json j =
      answer("plan --model 8B --batch 2 --len 32768 --gpus 8 --device h200 --precision bf16 --attention flash --keep no-cheap,input");
  for (const Json& row : j["rows"]) EXPECT_EQ(row["split_tokens"], true);
  refused("plan --model 8B --batch 2 --len 1001 --gpus 8 --device h200", 2, "--len a multiple of 16, so that tokens are");
}

// Bytes against time of every setting that fits, also those that the table leaves out; report draws the rows that a file holds.
TEST_F(ModelProgram, ThePlanIsAPictureToo) {
  const std::string plan = "plan --device h200 --memory 20 --precision bf16,fp32 --len 128 --most 5" + small_model;
  EXPECT_NE(run(plan + "--format md").out.find("Bytes against time"), std::string::npos);
  ASSERT_EQ(run(plan + "--out " + at("plan.html")).code, 0);
  EXPECT_NE(text_of(at("plan.html")).find("other settings that fit"), std::string::npos);
  ASSERT_EQ(run(plan + "--out " + at("plan.json")).code, 0);
  const Ended page = run("report " + at("plan.json") + " --format md");
  EXPECT_EQ(page.code, 0) << page.err;
  EXPECT_NE(page.out.find("Bytes against time"), std::string::npos) << page.out;
}

TEST_F(ModelProgram, ThePlanFindsALevelForEachBlock) {
  const std::string command =
      "plan --model 2.7B --batch 4 --len 1024 --device h200 --memory 50 --precision bf16 --attention flash --most 1";
  const Json levels = answer(command), found = answer(command + " --keep auto");
  const std::string keep = found["rows"][0]["keep"];
  EXPECT_NE(keep.find(" × "), std::string::npos) << "two levels: " << keep;
  EXPECT_LT(found["rows"][0]["ms"], levels["rows"][0]["ms"]);
  EXPECT_LE(found["rows"][0]["needed_bytes"], 50ull << 30);
  EXPECT_NE(levels["notes"].dump().find("--keep auto chooses a level for each block"), std::string::npos) << levels["notes"];
}

TEST_F(ModelProgram, OnTheCpuThePlanTakesTheCeilingsMeasuredLast) {
  keep_ceilings(1e9);
  const Json before = answer("plan --device cpu --len 32 --precision fp32,bf16,fp16" + small_model);
  keep_ceilings(2e9);
  const Json after = answer("plan --device cpu --len 32 --precision fp32,bf16,fp16" + small_model);
  EXPECT_EQ(before["rows"][0]["precision"], "fp32");
  EXPECT_NEAR(before["rows"][0]["ms_at_least"].get<double>() / after["rows"][0]["ms_at_least"].get<double>(), 2, 1e-6);
  EXPECT_NE(after["notes"].dump().find("measured by headroom device, run 2"), std::string::npos) << after["notes"];
}

// What people do on a card of 24 GB: the plan names it, and the account of memory model is the same.
TEST_F(ModelProgram, ThePlanAsPyTorchKnowsHowPeopleFineTune) {
  const Json j = answer("plan --as pytorch --model llama-3.1-8b --batch 2 --len 2048 --device 4090 --most 1");
  EXPECT_EQ(j["fits"], true);
  EXPECT_EQ(j.count("settings_that_fit"), 0u) << "beside fits it is taken for the whole answer";
  EXPECT_EQ(j["fp32_settings_that_fit"], 0);
  EXPECT_EQ(j["answer"].get<std::string>().find("Fits on NVIDIA GeForce RTX 4090: "), 0u) << j["answer"];
  std::map<std::string, Json> ways;
  for (const Json& row : j["ways"]) ways[row["way"]] = row;
  EXPECT_EQ(ways.at("all parameters, FP32, AdamW")["fits"], false);
  EXPECT_EQ(ways.at("all parameters, bf16, 8-bit AdamW")["fits"], false);
  for (const char* way : {"all parameters, bf16, paged 8-bit AdamW in backward", "LoRA of rank 16", "QLoRA of rank 16"}) {
    const Json& row = ways.at(way);
    EXPECT_EQ(row["fits"], true) << way;
    const std::string with = row["with"];
    const Json account =
        answer("memory model --as pytorch --model llama-3.1-8b --device rtx4090 --len 2048 --precision bf16 --attention flash " + with);
    EXPECT_EQ(account["rows"][0]["needed_bytes"], row["needed_bytes"]) << with;
    EXPECT_EQ(account["rows"][0]["host_bytes"], row["host_bytes"]) << with;
  }
  const Json none = answer("plan --as pytorch --model llama-3.1-70b --batch 8 --len 8192 --device H100 --memory 30 --most 1", 3);
  EXPECT_EQ(none["fits"], false);
  EXPECT_EQ(none["answer"].get<std::string>().find("Does not fit on NVIDIA H100 SXM: "), 0u) << none["answer"];
  const Json more = answer("plan --as pytorch --model llama-3.1-70b --batch 1 --len 2048 --device h100 --most 1 --precision bf16");
  EXPECT_EQ(more["fits"], true) << "QLoRA";
}

// What fits as a description says and not in every program of that description is said in the first line, by the plan as by the account, and why.
TEST_F(ModelProgram, WhatMayNotFitIsSaidByThePlanAndTheAccount) {
  const std::string model = " --as pytorch --model llama-3.1-8b --device 4090 ";
  const Json plan = answer("plan --batch 2 --len 2048 --most 1" + model);
  const std::string says = " (some programs would not: up to 23.9 GiB)";
  EXPECT_NE(plan["answer"].get<std::string>().find(" of 23.6 GiB" + says + ", and 15.0 GiB of host memory, with all parameters"),
            std::string::npos)
      << plan["answer"];
  EXPECT_NE(
      plan["notes"].dump().find("Some programs would not fit with all parameters, bf16, paged 8-bit AdamW in backward (up to 23.9 GiB)"),
      std::string::npos);
  for (const Json& way : plan["ways"]) {
    const Json account = answer("memory model --len 2048 --precision bf16 --attention flash " + way["with"].get<std::string>() + model,
                                way["fits"].get<bool>() ? 0 : 3);
    EXPECT_EQ(account["rows"][0]["at_most_bytes"], way["at_most_bytes"]) << way;
    const bool unsure = account["answer"].get<std::string>().find("some programs would not") != std::string::npos;
    const std::uint64_t beside = way["needed_bytes"].get<std::uint64_t>() - account["rows"][0]["train_peak_bytes"].get<std::uint64_t>();
    EXPECT_EQ(unsure, way["fits"].get<bool>() && way["at_most_bytes"].get<std::uint64_t>() + beside > plan["memory_bytes"]) << way;
  }
  const Json sure = answer("plan --batch 2 --len 2048 --most 1 --as pytorch --model llama-3.1-8b --device h200");
  EXPECT_EQ(sure["answer"].get<std::string>().find("some programs"), std::string::npos) << sure["answer"];
}

// The first line is a sentence: what the setting does, and the options that make it so, which are those of the account.
TEST_F(ModelProgram, ThePlanSaysInASentenceWhichSettingItNames) {
  const std::string machine = " --model 2.7B --batch 1 --len 1024 --device h200 --memory 40 --precision bf16 ";
  const std::string line = answer("plan --most 1" + machine)["answer"];
  std::smatch m;
  ASSERT_TRUE(std::regex_search(line, m,
                                std::regex("Fits on NVIDIA H200: ([0-9.]+ GiB) of 40.0 GiB, in bf16, activations recomputed "
                                           "\\((--keep [^)]*)\\); about ")))
      << line;
  EXPECT_EQ(bytes_in_words(answer("memory model" + machine + m.str(2))["rows"][0]["needed_bytes"].get<double>()), m.str(1)) << line;
  const auto says = [&](const std::string& plan, const char* words) {
    const std::string said = answer("plan --precision bf16 --most 1 --device h100 " + plan)["answer"];
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  says("--model small --batch 8 --gpus 8 --keep everything", ", in bf16, nothing recomputed (");
  says("--model 2.7B --batch 8 --len 4096 --memory 60", ", in bf16, activations recomputed, 8 micro-batches of 1 (--keep ");
  says("--model small --phase forward", ", in bf16; about ");
}

// Without --device a memory is that of no card that has a name; with it the account of a way has the same memory.
// 24 is the number on the box of an RTX 4090, whose driver lends less: a step of 23.9 GiB "fitted".
TEST_F(ModelProgram, NoMoreFitsACardThanItsDriverLends) {
  for (const std::string command :
       {"plan --model small --len 64", "plan --as pytorch --model small --len 64", "plan --phase inference --model qwen3-0.6b --len 64"}) {
    const Json all = answer(command + " --device 4090"), more = answer(command + " --device 4090 --memory 24");
    EXPECT_EQ(more["memory_bytes"], all["memory_bytes"]) << command;
    EXPECT_LT(more["memory_bytes"], std::int64_t(24) << 30) << command;
    EXPECT_EQ(answer(command + " --device 4090 --memory 20")["memory_bytes"], std::int64_t(20) << 30) << command;
  }
  const Json row = answer("memory model --model small --len 64 --device 4090 --memory 24");
  EXPECT_NE(row["answer"].get<std::string>().find(" of 23.6 GiB."), std::string::npos) << row["answer"];
  EXPECT_NE(row["notes"].dump().find("23.6 GiB, all of the card; --memory asks for more, 24.0 GiB."), std::string::npos) << row["notes"];
  EXPECT_EQ(answer("plan --model small --len 64 --memory 500")["memory_bytes"], std::int64_t(500) << 30) << "a card of that memory";
}

// More than there is let a step begin that the system ended.
TEST_F(ModelProgram, ARunTakesNoMoreThanIsThere) {
  const std::string tiny = " --device cpu --memory 1000000 --len 16 --steps 1 --model llama-3.1-405b --precision fp32 ";
  const Json step = answer("step --phase train" + tiny, 3);
  EXPECT_EQ(step["rows"][0]["status"], "oom") << step;
  EXPECT_EQ(step["rows"][0]["why"].get<std::string>().find("needs "), 0u) << step;
  put("tokens", std::string(4000, 'a'));
  const Json train = answer("train --tokens " + at("tokens") + tiny, 3);
  EXPECT_LE(train["memory_bytes"], std::int64_t(cpu_device().total_bytes)) << train;
  EXPECT_EQ(run("profile step" + tiny + "--db " + db_).code, 1);
}

TEST_F(ModelProgram, AMemoryAloneIsNoH200) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "the GPU that is here is meant";
  const std::string asked = " --as pytorch --model small --batch 1 --len 512 --memory 24GB";
  for (const std::string command : {"plan", "memory model"})
    EXPECT_EQ(answer(command + asked)["answer"].get<std::string>().find("Fits on a GPU of 22.4 GiB (else as an NVIDIA H200): "), 0u)
        << command;
  const Json plan = answer("plan --most 1" + asked);
  std::smatch m;
  const std::string notes = plan["notes"].dump();
  ASSERT_TRUE(std::regex_search(notes, m, std::regex("one by one: headroom (memory model [^\"]*)\""))) << notes;
  EXPECT_EQ(answer(m[1])["answer"].get<std::string>().find("Fits on NVIDIA H200: "), 0u);
  EXPECT_NE(answer(m[1])["answer"].get<std::string>().find(" of 22.4 GiB"), std::string::npos);
}

// The ways stand beside each other at their smallest, where a frozen base of 4 bits is the smallest of all; what fits may do more work.
TEST_F(ModelProgram, TheWaysOfAPlanAreDrawnAtTheirSmallest) {
  const std::string plan = "plan --as pytorch --model llama-3.1-8b --batch 4 --len 2048 --device 4090 --most 1";
  std::map<std::string, Json> ways;
  const Json j = answer(plan);
  for (const Json& row : j["ways"]) {
    ways[row["way"]] = row;
    EXPECT_LE(row["smallest_bytes"], row["needed_bytes"]) << row;
  }
  const Json &lora = ways.at("LoRA of rank 16"), &qlora = ways.at("QLoRA of rank 16");
  EXPECT_LT(qlora["smallest_bytes"].get<double>(), 0.6 * lora["smallest_bytes"].get<double>());
  const std::string out = run(plan).out;
  const auto title = out.find("Bytes at the peak of each way to train, in its smallest setting\n"),
             bar = out.find("  QLoRA of rank 16 ", title);
  ASSERT_NE(bar, std::string::npos) << out;
  const std::string line = out.substr(bar, out.find('\n', bar) - bar);
  EXPECT_NE(line.find(bytes_in_words(qlora["smallest_bytes"].get<double>())), std::string::npos) << line;
}

// Several GPUs: the answer says how many, why there is no time, and no row reserves more than a card has.
TEST_F(ModelProgram, ThePlanAsPyTorchOfSeveralGpusSaysWhatItLeavesOut) {
  const Json j = answer("plan --as pytorch --model llama-3.1-70b --batch 64 --len 4096 --gpus 64 --device h100 --most 3");
  EXPECT_EQ(j["answer"].get<std::string>().find("Fits on 64 × NVIDIA H100 SXM: "), 0u) << j["answer"];
  EXPECT_NE(j["answer"].get<std::string>().find(" each, with "), std::string::npos) << j["answer"];
  EXPECT_NE(j["notes"].dump().find("No ms: ranks on several hosts are not timed here"), std::string::npos);
  for (const Json& row : j["rows"]) EXPECT_LE(row["reserved_bytes"], j["memory_bytes"]) << row;
  const std::string of_a_row =
      " --model llama-3.1-8b --batch 2 --len 8192 --device h100 --precision bf16 --attention flash --adam fused --loss fp32 --selective "
      "ops "
      "--gpus 8 --shard everything";
  const Json account = answer("memory model --as pytorch" + of_a_row);
  EXPECT_LE(account["rows"][0]["reserved_bytes"], j["memory_bytes"]) << "the account says so too";
  const Json one = answer("plan --as pytorch --model llama-3.1-8b --batch 2 --len 2048 --device 4090 --most 1");
  EXPECT_NE(one["notes"].dump().find("No ms for all parameters, bf16, paged 8-bit AdamW in backward: "), std::string::npos);
}

TEST_F(ModelProgram, ALengthPastTheModelsPositionsIsSaid) {
  const std::string past = " is past the 131072 positions that Llama-3.1-8B was made for",
                    size = " --model llama-3.1-8b --device h200 --batch 1 ";
  for (const std::string command : {"memory model --phase inference", "plan --phase inference", "memory model", "plan --most 1",
                                    "memory model --as pytorch --attention flash", "plan --as pytorch --most 1"}) {
    EXPECT_NE(run(command + size + "--len 200000 --format json").out.find("A length of 200000" + past), std::string::npos) << command;
    if (command.find("inference") == std::string::npos) continue;
    EXPECT_EQ(run(command + size + "--len 131072 --format json").out.find(past), std::string::npos) << command;
  }
  std::ofstream(folder_ / "stretched.json")
      << R"({"model_type":"qwen2","vocab_size":97,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,
      "max_position_embeddings":1024,"rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":1024}})";
  const std::string file = "memory model --phase inference --device h200 --model " + (folder_ / "stretched.json").string();
  EXPECT_EQ(answer(file + " --len 4096").dump().find("is past the"), std::string::npos);
  EXPECT_NE(answer(file + " --len 4097").dump().find("is past the 4096 positions"), std::string::npos);
}

// A card without bf16 arithmetic is planned in fp16, and bf16 there is called what it is.
TEST_F(ModelProgram, ACardBeforeAmpereTrainsInFp16) {
  for (const std::string card : {"T4", "V100"}) {
    const Json j = answer("plan --as pytorch --model qwen3-0.6b --batch 2 --len 1024 --most 1 --device " + card);
    EXPECT_NE(j.dump().find("PyTorch emulates it there"), std::string::npos) << card;
    EXPECT_EQ(j["rows"][0]["precision"], "fp16") << card;
    for (const Json& row : j["ways"]) EXPECT_EQ(row["way"].get<std::string>().find("bf16"), std::string::npos) << row["way"];
    const std::string step =
        "memory model --as pytorch --model qwen3-0.6b --batch 1 --len 256 --lora 8 --attention flash --device " + card + " --precision ";
    EXPECT_NE(answer(step + "bf16").dump().find("no bf16 arithmetic"), std::string::npos);
    EXPECT_EQ(answer(step + "fp16").dump().find("no bf16 arithmetic"), std::string::npos);
  }
  EXPECT_EQ(answer("plan --as pytorch --model qwen3-0.6b --batch 2 --len 1024 --most 1 --device a10").dump().find("emulates"),
            std::string::npos);
}

// What the answer says of speed has its interval, and no more digits than that lets be known.
TEST_F(ModelProgram, AnEstimateHasAnIntervalAndNoFalseDigits) {
  for (const std::string plan : {"plan --as pytorch --model llama-3.2-1b --batch 2 --len 1024 --device 4090 --most 1",
                                 "plan --model small --batch 4 --len 1024 --device h200 --most 1"}) {
    const std::string line = answer(plan)["answer"];
    std::smatch m;
    ASSERT_TRUE(std::regex_search(line, m, std::regex("about ([0-9]+) \\(([0-9]+) to ([0-9]+)\\) tokens/s"))) << line;
    const double about = std::stod(m[1]), low = std::stod(m[2]), high = std::stod(m[3]);
    EXPECT_TRUE(low < about && about < high) << line;
    EXPECT_LE(std::regex_replace(m.str(1), std::regex("0+$"), "").size(), high - low > 0.12 * about ? 2u : 3u) << line;
  }
}

// The first line says by what combination a step fits, and that combination does.
TEST_F(ModelProgram, TheAccountAnswersFirst) {
  const Json j = answer("memory model --as pytorch --model llama-3.2-1b --batch 4 --len 1024 --device 4090 --memory 12", 3);
  const std::string line = j["answer"];
  EXPECT_EQ(line.find("Does not fit on NVIDIA GeForce RTX 4090: it needs "), 0u) << line;
  EXPECT_NE(j["notes"].dump().find("A step would take about "), std::string::npos) << j["notes"];
  EXPECT_NE(line.find("Least that would fit: "), std::string::npos) << line;
  for (const Json& row : j["mitigations"]) {
    if (row["instead"] == "as it is") continue;
    EXPECT_GT(row["saves_bytes"].get<double>(), 0.004 * j["mitigations"][0]["peak_bytes"].get<double>()) << row;
  }
  EXPECT_EQ(answer("memory model --as pytorch --len 16" + small_model)["answer"].get<std::string>().find("Fits on NVIDIA H200: "), 0u);
}

}  // namespace
}  // namespace headroom
