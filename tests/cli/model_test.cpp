// A language model's commands as a user meets them: memory model, plan, step, and a training that is killed and goes on.
#include <signal.h>

#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "studies/memory/pytorch/language_model.h"
#include "tests/cli/program.h"

namespace headroom {
namespace {

const std::string small_model = " --layers 2 --width 64 --heads 2 --vocab 100 --batch 2 ";

class ModelProgram : public Program {
 protected:
  Json answer(const std::string& arguments, int code = 0) const {
    const Ended e = run(arguments + " --format json --db " + db_);
    EXPECT_EQ(e.code, code) << arguments << "\n" << e.err;
    return Json::parse(e.out, nullptr, false);
  }
};

TEST_F(ModelProgram, BadInputGetsOneLine) {
  refused("memory model --model nosuch", 2, "small, medium, large, xl, 2.7B, xl-2026, 10B, 8B");
  refused("memory model --width 100", 2, "not a multiple of 12 heads");
  refused("memory model --batch 1000000 --len 1000000", 2, "2^31");
  refused("memory model --keep all", 2, "no-attention-inputs");
  refused("memory model --keep groups:1", 2, "K is 2 or more");
  refused("memory model --keep groups:two", 2, "K is 2 or more");
  refused("memory model --keep groups:3:most", 2, "LEVEL one of everything, no-product");
  refused("memory model --keep host:0", 2, "N is 1 or more");
  refused("memory model --softmax composed --adam fused", 2, "--softmax, --adam: only with --as pytorch");
  refused("memory attention --upstream sum", 2, "--upstream: only with --as pytorch");
  refused("memory model --phase inference --keep input --masters halves", 2, "leave --keep, --masters out");
  refused("memory model --as pytorch --keep no-cheap", 2, "choose from everything, input");
  refused("memory model --as pytorch --keep host:2:input", 2, "choose from everything, input");
  refused("memory model --as pytorch --masters halves", 2, "leave --masters out");
  refused("memory model --as pytorch --gpus 2 --shard optimizer", 2, "FSDP2 has no such setting");
  refused("memory model --as pytorch --shard everything", 2, "name --gpus");
  refused("memory model --as pytorch --gpus 2 --lora 8", 2, "leave --gpus out");
  refused("memory model --as pytorch --gpus 2 --shard everything --keep groups:2", 2, "choose --keep everything or input");
  refused("memory model --as pytorch --compile model --attention flash --keep input", 2, "choose --compile blocks");
  refused("memory model --as pytorch --compile blocks", 2, "with --attention flash");
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
  refused("train --text x --precision bf16 --scales row", 2, "only fp8 has scales");
  refused("train --text x --precision fp8 --switch-precision", 2, "it is of --resume");
  refused("plan --device cpu --precision fp32,tf32", 2, "name a GPU");
  refused("plan --device cpu --gpus 2", 2, "name a GPU");
  refused("plan --device cpu --keep host", 2, "a CPU's own memory is the host's");
  refused("plan --device b200 --keep host:input", 2, "have nothing to move to the host");
  refused("plan --device h200 --batch 4 --gpus 3", 2, "make it a multiple");
  refused("plan --device h200 --gpus 0", 2, "--gpus");
  refused("plan --memory 0", 2, "GiB");
  refused("plan --device h20", 2, "h200");
  refused("step --steps 0", 2, "--steps");
  refused("step --device h200", 2, "choose from cpu, cuda");
  refused("train", 2, "--text FILE");
  refused("train --text /no/such/file", 2, "cannot be opened");
  refused("train --text x --lr nan", 2, "--lr");
  refused("train --text x --resume", 2, "--save");
  refused("train --text x --init " + folder_.string(), 2, "no config.json");
  refused("train --tokens x --prompt hello", 2, "--prompt");
  refused("memory model --measure --device h200", 2, "choose from cpu, cuda");
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
  const Json j = answer("memory model --as pytorch --model small --len 128,1024 --memory 24");
  ASSERT_EQ(j["edge"].size(), 2u);
  const auto fits = [&](std::int64_t len, int code) {
    const Json there = answer(fmt::format("memory model --as pytorch --model small --len {} --memory 24", len), code);
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

TEST_F(ModelProgram, AsPyTorchIsTheAccountOfThatModel) {
  const Json j = answer(
      "memory model --as pytorch --kv-heads 1 --len 32,64 --precision bf16 --attention flash --adam fused --workspace-mib 8" + small_model);
  ASSERT_EQ(j["rows"].size(), 2u);
  studies::pytorch::LanguageModel m;
  m.vocab = 100, m.width = 64, m.ffn = 256, m.layers = 2, m.heads = 2, m.kv_heads = 1, m.batch = 2, m.len = 64;
  m.precision = {DType::bf16}, m.fused_attention = true, m.adam = studies::pytorch::Adam::fused;
  const auto a = account(m, 8u << 20, studies::pytorch::Detail::components);
  EXPECT_EQ(j["rows"][1]["params"], a.params);
  EXPECT_EQ(j["rows"][1]["train_peak_bytes"], a.train_peak_bytes);
  EXPECT_EQ(j["rows"][1]["forward_peak_bytes"], a.forward_peak_bytes);
}

TEST_F(ModelProgram, ThePlanOfAModelThatFitsIsFastestFirst) {
  const Json j = answer("plan --model 2.7B --device h200 --most 10000");
  EXPECT_EQ(j["fits"], true);
  ASSERT_EQ(j["rows"].size(), j["settings_that_fit"].get<std::size_t>());
  std::int64_t least = j["rows"][0]["peak_bytes"];
  for (std::size_t i = 1; i < j["rows"].size(); ++i) {
    EXPECT_LE(j["rows"][i - 1]["ms_at_least"], j["rows"][i]["ms_at_least"]);
    EXPECT_LE(j["rows"][i]["needed_bytes"], j["memory_bytes"]);
    EXPECT_LT(j["rows"][i]["peak_bytes"], j["rows"][i]["needed_bytes"]);
    least = std::min(least, j["rows"][i]["peak_bytes"].get<std::int64_t>());
  }
  const Json small = answer("plan --model 2.7B --device h200 --memory 3", 3);
  EXPECT_EQ(small["fits"], false);
  ASSERT_EQ(small["rows"].size(), 1u) << "the nearest";
  EXPECT_EQ(small["rows"][0]["peak_bytes"], least);
  EXPECT_NE(small["notes"].dump().find("Nothing fits. The nearest needs"), std::string::npos) << small["notes"];
}

TEST_F(ModelProgram, ThePlanTriesEveryLeverAndTheAccountAgrees) {
  const Json j = answer("plan --model 2.7B --batch 1 --len 1024 --device h200 --memory 40 --precision bf16");
  EXPECT_EQ(j["rows"][0]["keep"], "input");
  EXPECT_EQ(j["rows"][0]["masters"], "halves");
  EXPECT_EQ(j["rows"][0]["gradients"], "none");
  EXPECT_EQ(j["rows"][0]["update"], "during");
  const Json account = answer(
      "memory model --model 2.7B --batch 1 --len 1024 --device h200 --memory 40 --precision bf16 --keep input --masters halves "
      "--gradients none --update during");
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
  answer("memory model --as pytorch --memory 1 --len 16" + small_model, 0);
  answer("memory model --as pytorch --memory 0.3 --len 16" + small_model, 3);
  const Json attention = answer("memory attention --len 65536 --variant plain --memory 1", 3);
  EXPECT_EQ(attention["rows"][0]["status"], "oom");
  answer("memory attention --len 1024,65536 --variant plain,flash --memory 1", 0);
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

TEST_F(ModelProgram, LearnedPositionsEndALength) {
  std::ofstream(folder_ / "gpt2.json") << R"({"model_type":"gpt2","vocab_size":97,"n_embd":64,"n_layer":2,"n_head":4,"n_positions":1024})";
  const std::string model = " --device h200 --model " + (folder_ / "gpt2.json").string();
  const Json training = answer("memory model --batch 1 --len 128" + model),
             inference = answer("memory model --phase inference --len 128" + model);
  EXPECT_EQ(training["edge"][0]["largest_len"], 1024);
  EXPECT_EQ(inference["edge"][0]["largest_len"], 1024);
  const Json plan = answer("plan --phase inference --batch 1 --len 100" + model);
  for (const Json& row : plan["rows"]) EXPECT_LE(row["len"].get<int>(), 1024);
  for (const char* command : {"memory model", "memory model --phase inference", "plan", "plan --phase inference"})
    refused(command + model + " --len 1025", 2, "len is 1025, and model gpt2 has 1024 learned positions");
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
    EXPECT_NEAR(tensor["exposed_ms"].get<double>(), tensor["link_bytes"].get<double>() / 450e9 * 1e3, 1e-6) << "nothing covers it";
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
  ASSERT_EQ(torch["settings"], 24) << "keep, compile, micro-batch, sharding";
  EXPECT_EQ(torch["rows"][0]["compile"], "blocks");
  const Json same = answer(
      "memory model --as pytorch --device h200 --batch 2 --len 64 --gpus 2 --precision bf16 --attention flash --adam fused "
      "--compile blocks --layers 2 --width 64 --heads 2 --vocab 100")["rows"][0];
  EXPECT_EQ(torch["rows"][0]["peak_bytes"], same["train_peak_bytes"]);
  EXPECT_EQ(torch["rows"][0]["needed_bytes"], same["needed_bytes"]);
  EXPECT_EQ(run("plan --as pytorch --device h200 --memory 1 --model small --format json").code, 3);
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

TEST_F(ModelProgram, ATimeIsExpectedWhereSuchACardWasMeasured) {
  const std::string size = " --model small --batch 4 --len 512 --precision bf16 ";
  const Json plan = answer("plan --device h200 --most 1" + size), row = plan["rows"][0];
  EXPECT_LT(row["ms_at_least"], row["ms"]);
  EXPECT_LT(row["ms_low"], row["ms"]);
  EXPECT_LT(row["ms"], row["ms_high"]);
  EXPECT_NE(plan["notes"].dump().find("ms is expected"), std::string::npos);
  const Json account = answer("memory model --device h200" + size)["rows"][0];
  EXPECT_NEAR(account["ms"].get<double>(), 4.90, 0.12 * 4.90) << "as recorded";
  const Json elsewhere = answer("plan --device h100 --most 1" + size);
  EXPECT_FALSE(elsewhere["rows"][0].contains("ms") && elsewhere["rows"][0]["ms"].is_number());
  EXPECT_EQ(elsewhere["notes"].dump().find("ms is expected"), std::string::npos);
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
  EXPECT_LT(found["rows"][0]["ms_at_least"], levels["rows"][0]["ms_at_least"]);
  EXPECT_LE(found["rows"][0]["needed_bytes"], 50ull << 30);
  EXPECT_NE(levels["notes"].dump().find("--keep auto finds a level for each block"), std::string::npos) << levels["notes"];
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
  refused(train + "--resume --save " + at("run"), 2, "was trained with logits \"half\", this run asks for \"whole\"");
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

TEST_F(ModelProgram, OnTheCpuThePlanTakesTheCeilingsMeasuredLast) {
  keep_ceilings(1e9);
  const Json before = answer("plan --device cpu --len 32 --precision fp32,bf16,fp16" + small_model);
  keep_ceilings(2e9);
  const Json after = answer("plan --device cpu --len 32 --precision fp32,bf16,fp16" + small_model);
  EXPECT_EQ(before["rows"][0]["precision"], "fp32");
  EXPECT_NEAR(before["rows"][0]["ms_at_least"].get<double>() / after["rows"][0]["ms_at_least"].get<double>(), 2, 1e-6);
  EXPECT_NE(after["notes"].dump().find("measured by headroom device, run 2"), std::string::npos) << after["notes"];
}

TEST_F(ModelProgram, AStepTakesWhatWasForecastAndOneThatDoesNotFitIsARow) {
  keep_ceilings(1e9);
  const Json j = answer("step --len 16,32 --precision fp32,bf16 --steps 2 --warmup 1" + small_model);
  ASSERT_EQ(j["rows"].size(), 12u);
  for (const Json& row : j["rows"]) {
    EXPECT_EQ(row["status"], "ok") << row;
    EXPECT_EQ(row["peak_bytes"], row["forecast_peak_bytes"]) << row;
    EXPECT_GT(row["ms"], 0.0);
    EXPECT_NEAR(row["mfu"].get<double>(), row["model_tflops"].get<double>() * 1e12 / 1e9, 1e-6 * row["mfu"].get<double>())
        << "against the ceiling that was kept";
  }
  const Json mixed = answer("step --len 16 --device cpu --precision tf32,fp32 --steps 1 --warmup 0" + small_model);
  ASSERT_EQ(mixed["rows"].size(), 6u);
  EXPECT_EQ(mixed["rows"][0]["status"], "refused");
  EXPECT_NE(mixed["rows"][0]["why"].get<std::string>().find("tf32 needs a GPU"), std::string::npos) << mixed["rows"][0];
  EXPECT_EQ(mixed["rows"][3]["status"], "ok") << "the others are timed all the same";
  const Json refused = answer("step --len 16 --memory 0.0001 --steps 1" + small_model, 3);
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
    for (const char* own : {"tokens_per_s", "peak_bytes", "forecast_peak_bytes"}) j.erase(own);
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

// What a card or a width is not served with is not advised, and refused only to whoever asks for it.
TEST_F(ModelProgram, GradientsThatAreNeverHeldAreAdvisedWhereTheyAreServed) {
  const std::string model = "memory model --model small --precision bf16 --masters halves --update during ", none = "--gradients none";
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
  refused(common + " --steps 20 --resume --save " + save, 2, "was trained with");
  refused(less + " --clip 1 --steps 20", 2, "--update after");
  refused(less + " --steps 20 --micro-batches 2", 2, "one micro-batch");
}

TEST_F(ModelProgram, Fp8TrainsOnACpuGoesOnAndMayBeginOrEndInAnotherPrecision) {
  {
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 60; ++i) text << "line " << i * i << " of a text that is long enough to learn a little from\n";
  }
  const std::string common = "train --device cpu --text " + (folder_ / "text.txt").string() +
                             " --layers 1 --width 48 --heads 2 --len 24 --batch 2 --validate 0 --warmup 0 --every 4 --precision ",
                    save = (folder_ / "run").string(), to_12 = " --steps 12", keep = to_12 + " --resume --save " + save;
  const double bf16 = answer(common + "bf16" + to_12)["validation_loss"];
  for (const std::string scales : {"tensor", "row", "block"}) {
    const Json j = answer(common + "fp8 --scales " + scales + to_12);
    EXPECT_EQ(j["peak_bytes"], j["forecast_peak_bytes"]);
    EXPECT_NEAR(j["validation_loss"].get<double>(), bf16, 0.05);
    EXPECT_EQ(j["rows"].back()["clipped"], 0);
    EXPECT_GE(j["rows"].back()["flushed"], 0);
    EXPECT_NE(j["notes"].dump().find("fp8: the blocks' products, scales by " + scales), std::string::npos) << j["notes"];
  }
  const Json through = answer(common + "fp8 --save " + save + to_12);
  const auto last = save + "/step-00000012.safetensors";
  fs::remove(last);  // as if it had been killed after step 8
  EXPECT_EQ(answer(common + "fp8" + keep)["validation_loss"], through["validation_loss"]);
  fs::remove(last);
  refused(common + "fp8 --scales row" + keep, 2, "was trained with scales");
  refused(common + "bf16" + keep, 2, "was trained with precision");
  const Json ended = answer(common + "bf16 --switch-precision" + keep);
  EXPECT_EQ(ended["step"], 12);
  EXPECT_NE(ended["validation_loss"], through["validation_loss"]);
  const std::string sizes = " --layers 1 --width 48 --heads 2";  // which the folder knows
  std::string from_weights = common;
  from_weights.erase(from_weights.find(sizes), sizes.size());
  EXPECT_EQ(answer(from_weights + "fp8 --steps 0 --init " + save)["step"], 0) << "weights are FP32 in the file";
}

TEST_F(ModelProgram, Fp8IsForecastForACardAndSaysWhatItIs) {
  const Json plan = answer("plan --device h200 --model small --batch 4 --len 1024 --precision bf16,fp8 --attention flash");
  EXPECT_EQ(plan["rows"][0]["precision"], "fp8") << "its ceiling is the higher";
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
