// `headroom plan --phase inference`: what serves, at what batch, and what would where nothing does.

#include "tests/cli/model_program.h"

namespace headroom {
namespace {

// A page of what serves has its own pictures, and where nothing serves the answer says what was tried.
TEST_F(ModelProgram, ThePlanOfServingShowsTheLargestBatch) {
  const std::string plan = "plan --phase inference --model llama-3.1-8b --batch 8 --len 8192 --device ";
  const std::string out = run(plan + "a100").out;
  EXPECT_NE(out.find("The largest batch at each length\n  bf16 "), std::string::npos) << out;
  EXPECT_NE(out.find("Tokens per second at that batch, at most\n  bf16 "), std::string::npos) << out;
  const std::string none = answer("plan --phase inference --model llama-3.1-70b --batch 1 --len 8192 --device 4090", 3)["answer"];
  EXPECT_NE(none.find(" No --chunk, --cache or --weights makes it fit: the least is "), std::string::npos) << none;
  const Json answered = answer("plan --phase inference --model mistral-7b-v0.1 --device a100");  // outlives the loop
  for (const Json& row : answered["rows"]) EXPECT_LE(row["len"], 32768) << "as far as its positions";
}

// Where nothing on one card serves, the answer has the least of all ways, and how many cards serve it so, and as it is.
TEST_F(ModelProgram, WhereNothingServesThereIsALeastAndANumberOfGpus) {
  const auto said = [&](const std::string& words) {
    return answer("memory model --phase inference --model " + words, 3)["answer"].get<std::string>();
  };
  const auto number = [](const std::string& line, const std::string& before) {
    const auto at = line.find(before);
    return at == std::string::npos ? 0 : std::stoi(line.substr(at + before.size()));
  };
  // 8B, 64 × 200 000: 64 KiB a token in 8 bits is 781 GiB of cache, beside 5.3 GiB of weights in 4 bits; in 8 bits they would be 8.
  const std::string longer = "llama-3.1-8b --batch 64 --len 200000 --device h100 ", line = said(longer);
  EXPECT_EQ(number(line, "the least is "), 788) << line;
  EXPECT_NE(
      line.find("with --chunk 2048 --cache fp8 --weights int4, for which it takes 12 such GPUs: 6 replicas of --gpus 2 with at most 12 "
                "sequences each. As it is it takes 28 such GPUs: 7 replicas of --gpus 4 with at most 10 sequences each."),
      std::string::npos)
      << line;
  const std::string one_group = "memory model --phase inference --model llama-3.1-8b --len 200000 --device h100 --gpus 4 --batch ";
  EXPECT_EQ(answer(one_group + "10")["rows"][0]["fits"], true);
  EXPECT_EQ(answer(one_group + "11", 3)["rows"][0]["fits"], false);
  const std::string least = said(longer + "--chunk 2048 --cache fp8 --weights int4");
  EXPECT_NE(least.find(" No --chunk, --cache or --weights makes it less. As it is it takes 12 such GPUs: "), std::string::npos) << least;
  // Each of 128 4090 holds a key head of 131 072 positions, 7.9 GiB, beside 5.9 of weights and what the prompt makes.
  const std::string nowhere = said("llama-3.1-405b --batch 4 --len 131072 --device 4090");
  EXPECT_NE(nowhere.find("As it is no number of such GPUs serves it: the model divides among 128 at most, and one sequence alone takes "),
            std::string::npos)
      << nowhere;
}

// The fewest GPUs, together or as replicas: three key heads divide among 3, but two cards with half of the sequences each are enough.
TEST_F(ModelProgram, TheFewestGpusThatServeAreNamed) {
  const std::string small = "memory model --phase inference --model smollm2-135m --device 4090 --len 2048 --batch ";
  const std::string line = answer(small + "1024", 3)["answer"];
  EXPECT_NE(line.find("As it is it takes 2 such GPUs: 2 replicas with at most 5"), std::string::npos) << line;
  EXPECT_EQ(answer(small + "512")["rows"][0]["fits"], true);
  const std::string same =
      answer("memory model --phase inference --model qwen3-32b --device 5090 --weights int4 --batch 4 --len 32768", 3)["answer"];
  EXPECT_EQ(same.find("for which it takes"), std::string::npos) << "the number is said once: " << same;
  EXPECT_NE(same.find("As it is it takes 2 such GPUs (--gpus 2)."), std::string::npos) << same;
  refused("memory model --phase inference --model qwen2.5-7b --device h100 --gpus 8", 2,
          "query heads of this model, 28, do not divide by 8 for tensor parallelism; --gpus 2, 4 do");
}

// A server brings kernels of its own, so that the bytes of serving are known of cards that ours do not run on.
TEST_F(ModelProgram, CardsWithoutOurKernelsServe) {
  for (const std::string card : {"t4", "v100", "mi300x"}) {
    const std::string size = "--phase inference --model qwen3-0.6b --batch 2 --len 1024 --device ";
    const Json j = answer("memory model " + size + card), row = j["rows"][0], like = answer("memory model " + size + "a100")["rows"][0];
    EXPECT_NE(j.dump().find("kernels do not run on"), std::string::npos) << card;
    EXPECT_EQ(row["fits"], true) << card;
    EXPECT_EQ(row["weight_bytes"], like["weight_bytes"]) << card;
    EXPECT_EQ(row["cache_bytes"], like["cache_bytes"]) << card;
    EXPECT_EQ(row["precision"], card == "mi300x" ? "bf16" : "fp16") << card;
    EXPECT_GT(row["tokens_per_s_at_most"], 0) << row;
    EXPECT_EQ(answer("plan " + size + card)["fits"], true) << card;
    refused("memory model --model qwen3-0.6b --device " + card, 2, "What PyTorch takes there");
  }
}

}  // namespace
}  // namespace headroom
