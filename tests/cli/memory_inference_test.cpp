// `headroom memory model --phase inference`: a model that answers, its weights, cache and GPUs.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "tests/cli/model_program.h"

namespace headroom {
namespace {

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

}  // namespace
}  // namespace headroom
