// How a model that answers is held: bytes of quantised checkpoints as their makers name them, the cache's pages, shares of several GPUs.
#include "engine/forecast/serving.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/model/models.h"
#include "engine/model/params.h"
#include "engine/model/plain_model.h"
#include "engine/model/published.h"
#include "engine/model/tensor_parallel.h"
#include "engine/pass/inference.h"

namespace headroom::engine {
namespace {

Decoder published(const char* name) {
  for (const Published& p : published_models())
    if (p.name == name) return model_from_json(p.config, p.name);
  throw Error(Code::bad_argument, name);
}

struct Held {
  std::uint64_t weights = 0, cache = 0, peak = 0;
  double link_bytes = 0, bytes = 0, flops = 0;  // the walk's
  Cost attention;                               // the last layer's
};
Held held(const Decoder& d, Generation g, Inference how = Inference::decode) {
  Ledger ledger;
  Arena arena(&ledger);
  Walk walk;
  const Device h200 = device_described("h200");
  Context ctx{arena, h200};
  ctx.walk = &walk;
  g.precision = {DType::bf16};
  run_inference(d, g, how, ctx);
  Held h;
  for (const Entry& e : ledger.entries()) {
    if (e.phase == Phase::parameter) h.weights += e.bytes;
    if (std::string_view(e.name.text) == "cache") h.cache += e.bytes;
  }
  for (const OpCall& op : walk.steps) {
    h.link_bytes += op.cost.link_bytes, h.bytes += op.cost.bytes, h.flops += op.cost.flops;
    if (op.work == Work::attention) h.attention = op.cost;
  }
  h.peak = arena.peak();
  return h;
}

// As their model card has them (arXiv 2508.10925, table 1): 12.8 and 60.8 GiB.
TEST(Serving, CheckpointsOfGptOssHaveTheirBytes) {
  for (const auto& [name, gib] : {std::pair{"gpt-oss-20b", 12.8}, std::pair{"gpt-oss-120b", 60.8}}) {
    const Decoder d = published(name);
    const auto format = weight_format(d, WeightsAs::checkpoint);
    ASSERT_TRUE(format) << name;
    EXPECT_EQ(int(format->as), int(WeightsAs::mxfp4));
    EXPECT_NEAR(double(held(d, {.weights = *format}).weights) / 0x1p30, gib, 0.05) << name;
  }
}

// 4 bits, and 20 for each 128 numbers; embedding, head and norms in 16.
TEST(Serving, FourBitsOfALlama) {
  const Decoder d = published("Llama-3.1-8B");
  EXPECT_EQ(int(weight_format(d, WeightsAs::checkpoint)->as), int(WeightsAs::precision));
  const std::int64_t in_blocks = 32ll * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336), others = 8'030'261'248 - in_blocks;
  EXPECT_EQ(held(d, {.weights = {WeightsAs::int4}}).weights, std::uint64_t(in_blocks / 2 + in_blocks / 128 * 5 / 2 + 2 * others));
  const Held whole = held(d, {.batch = 1, .len = 1}), four = held(d, {.batch = 1, .len = 1, .weights = {WeightsAs::int4}});
  EXPECT_EQ(whole.weights, 2 * 8'030'261'248ull);
  EXPECT_NEAR(whole.bytes - four.bytes, double(whole.weights - four.weights), 1e3) << "a token reads every weight once, as it is held";
}

TEST(Serving, FilesSayHowTheyAreQuantised) {
  const auto format = [](const std::string& quantisation) {
    Decoder d;
    d.source = R"({"quantization_config":)" + quantisation + "}";
    return weight_format(d, WeightsAs::checkpoint);
  };
  EXPECT_EQ(int(format(R"({"quant_method":"fp8","weight_block_size":[128,128]})")->as), int(WeightsAs::fp8));
  EXPECT_EQ(int(format(R"({"quant_method":"awq","bits":4,"group_size":128})")->as), int(WeightsAs::int4));
  EXPECT_EQ(int(format(R"({"quant_method":"bitsandbytes","load_in_4bit":true})")->as), int(WeightsAs::nf4));
  EXPECT_FALSE(format(R"({"quant_method":"gptq","bits":3,"group_size":128})")) << "not known, so not guessed";
  EXPECT_FALSE(format(R"({"quant_method":7})"));
}

// By the table of weights: gpt-oss holds its experts alone in fewer bits, others every matrix of a block but the router.
TEST(Serving, ProductsAreOfTheWeightsThatTheyMultiply) {
  const auto moe = param_table(published("Qwen3-30B-A3B")), latent = param_table(published("DeepSeek-V3"));
  const WeightFormat experts{WeightsAs::mxfp4, true}, all{WeightsAs::fp8}, none{WeightsAs::precision};
  struct {
    const char* product;
    bool of_experts, of_all;
  } const products[] = {{"experts.gate_up", true, true}, {"experts.down", true, true},        {"router", false, false},
                        {"attention.qkv", false, true},  {"attention.k_absorb", false, true}, {"shared.down", false, true}};
  for (const auto& [product, of_experts, of_all] : products) {
    const auto& weights =
        std::string_view(product).starts_with("attention.k") || std::string_view(product).starts_with("shared") ? latent : moe;
    const Name op{product, 5};
    EXPECT_EQ(experts.quantises_product(weights, op), of_experts) << product;
    EXPECT_EQ(all.quantises_product(weights, op), of_all) << product;
    EXPECT_FALSE(none.quantises_product(weights, op)) << product;
  }
  EXPECT_FALSE(all.quantises_product(moe, {"head", -1}));
}

// Sizes alone describe this model, and its file says more: the bytes of its weights.
TEST(Serving, AFileOfPlainSizesSaysHowItIsQuantisedToo) {
  const Decoder d =
      model_from_json(R"({"model_type":"llama","vocab_size":100,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
      "num_attention_heads":4,"quantization_config":{"quant_method":"awq","bits":4,"group_size":128}})",
                      "llama");
  ASSERT_TRUE(plain_of(d));
  EXPECT_EQ(int(weight_format(d, WeightsAs::checkpoint)->as), int(WeightsAs::int4));
}

TEST(Serving, TheCacheHasItsTypeItsPagesAndItsWindows) {
  const Decoder llama = published("Llama-3.1-8B"), mixed = published("gpt-oss-20b");
  EXPECT_EQ(held(llama, {.batch = 3, .len = 100}).cache, 3ull * 100 * 32 * 2 * 8 * 128 * 2);
  EXPECT_EQ(held(llama, {.batch = 3, .len = 100, .cache = DType::e4m3, .page = 16}).cache, 3ull * 112 * 32 * 2 * 8 * 128);
  EXPECT_EQ(held(mixed, {.batch = 1, .len = 4096}).cache, (12ull * 4096 + 12 * 128) * 2 * 8 * 64 * 2) << "every second layer sees 128";
}

// Bytes of a position's keys and values by hand, of 2 bytes a number: 61 layers of 576, 80 of 2 · 8 · 128, 126 of 2 · 8 · 128. A token decoded
// against one position more reads those bytes more, whatever its attention.
TEST(Serving, ATokenReadsTheCacheAndNothingMore) {
  for (const auto& [name, bytes] : {std::pair{"DeepSeek-V3", 70'272}, {"Qwen2.5-72B", 327'680}, {"Llama-3.1-405B", 516'096}}) {
    const Decoder d = published(name);
    const Held some = held(d, {.batch = 4, .len = 4096}), more = held(d, {.batch = 4, .len = 8192});
    EXPECT_EQ(more.cache - some.cache, 4ull * 4096 * std::uint64_t(bytes)) << name;
    EXPECT_DOUBLE_EQ(more.bytes - some.bytes, 4.0 * 4096 * bytes) << name;
    const Held eight = held(d, {.batch = 4, .len = 8192, .cache = DType::e4m3});
    EXPECT_DOUBLE_EQ(more.bytes - eight.bytes, 4.0 * 8192 * bytes / 2) << name;
  }
}

// FlashMLA's own count (its deep dive of 2025-04-22): 2 · heads · keys · (576 + 512) FLOPs of 576 numbers a key, about 2 · heads a byte.
TEST(Serving, ADecoderOfLatentsComputesOnThem) {
  const Decoder v3 = published("DeepSeek-V3");
  const double keys = 32.0 * 65536;
  const Held h = held(v3, {.batch = 32, .len = 65536});
  EXPECT_DOUBLE_EQ(h.attention.flops, 2 * 128 * keys * (576 + 512));
  const double of_queries = 32.0 * 128 * ((576 + 512) * 2 + 4);
  EXPECT_DOUBLE_EQ(h.attention.bytes, keys * 576 * 2 + of_queries);
  EXPECT_NEAR(h.attention.flops / h.attention.bytes, 2 * 128 * 1088. / 1152, 1);
  // Without a key the absorbed products compute what those they replace do: two a weight that a token is multiplied with.
  const Held one = held(v3, {.batch = 1, .len = 1});
  const double multiplied = double(active_param_count(v3)) - 129'280.0 * 7168, of_scores = 61.0 * 2 * 128 * 1088;
  EXPECT_NEAR(one.flops - of_scores, 2 * multiplied, 5e-4 * multiplied) << "but for norms and what turns";
}

TEST(Serving, AbsorbedWeightsAreReadOnceAsTheyAreHeld) {
  Decoder dense = published("DeepSeek-V3");
  dense.layers.resize(2);
  for (const WeightsAs as : {WeightsAs::fp8, WeightsAs::int4}) {
    const Held whole = held(dense, {.batch = 2, .len = 16}), less = held(dense, {.batch = 2, .len = 16, .weights = {as}});
    EXPECT_NEAR(whole.bytes - less.bytes, double(whole.weights - less.weights), 1e3) << int(as);
  }
  // No key or value of a head is written: what is live beside weights and cache does not grow with what is cached.
  const Held some = held(dense, {.batch = 2, .len = 16}), more = held(dense, {.batch = 2, .len = 1 << 20});
  EXPECT_EQ(more.peak - more.cache, some.peak - some.cache);
}

// Eight tokens that choose 8 of 128 experts each, evenly and by themselves, miss an expert with a chance of (120/128)^8: 51.6 are read, not 64.
TEST(Serving, TokensThatShareExpertsReadThemOnce) {
  const Decoder d = published("Qwen3-30B-A3B");
  const double expert = 48.0 * 3 * 2048 * 768 * 2;  // in all layers
  const auto read = [&](std::int64_t batch) { return held(d, {.batch = batch, .len = 1}).bytes; };
  EXPECT_NEAR((read(8) - read(1)) / expert, 128 * (1 - std::pow(120. / 128, 8)) - 8, 0.3) << "but for activations";
  EXPECT_NEAR((read(512) - read(511)) / expert, 0, 0.1) << "all of them";
}

TEST(Serving, APromptInChunksNeedsLess) {
  const Decoder d = published("Llama-3.1-8B");
  const Held whole = held(d, {.batch = 1, .len = 32768}, Inference::prefill),
             chunks = held(d, {.batch = 1, .len = 32768, .chunk = 2048}, Inference::prefill);
  EXPECT_EQ(whole.cache, chunks.cache);
  EXPECT_LT(chunks.peak - chunks.cache - chunks.weights, (whole.peak - whole.cache - whole.weights) / 8);
}

TEST(Serving, GpusShareHeadsColumnsAndWords) {
  const Decoder whole = published("Llama-3.1-70B"), one = share_of(whole, 8, KeyHeads::repeated);
  const Held all = held(whole, {.batch = 4, .len = 2048}), share = held(one, {.batch = 4, .len = 2048, .gpus = 8});
  EXPECT_NEAR(double(share.weights) * 8 / double(all.weights), 1, 1e-3) << "but for norms";
  EXPECT_EQ(share.cache * 8, all.cache) << "a key head each";
  EXPECT_EQ(held(share_of(whole, 16, KeyHeads::repeated), {.batch = 4, .len = 2048, .gpus = 16}).cache, share.cache) << "which stays whole";
  EXPECT_EQ(share.link_bytes, 80.0 * 2 * (4 * 8192 * 2) * 2 * 7 / 8) << "two sums a layer";
  EXPECT_THROW(share_of(whole, 7, KeyHeads::repeated), Error);
  EXPECT_EQ(share_of(whole, 8, KeyHeads::divided), one) << "training and serving divide alike";
  EXPECT_NE(why_no_shares(whole, 16, KeyHeads::divided).find("key heads of this model, 8, do not divide by 16: gradients"),
            std::string::npos);
  const Decoder mixture = published("Qwen3-30B-A3B"), part = share_of(mixture, 4, KeyHeads::repeated);
  EXPECT_EQ(part.first().ffn.width * 4, mixture.first().ffn.width) << "columns of every expert";
  EXPECT_EQ(part.first().ffn.experts, mixture.first().ffn.experts);
}

// DeepSeek's latents are no heads': by heads every GPU has all of them. By sequences a GPU has its own sequences', and attention's weights whole.
TEST(Serving, BySequencesAGpuHoldsItsOwnLatents) {
  const Decoder whole = published("DeepSeek-V3");
  const Generation g{.batch = 128, .len = 4096, .gpus = 8}, apart{.batch = 128, .len = 4096, .gpus = 8, .by = AttentionBy::sequences};
  const Decoder by_heads = share_of(whole, 8, KeyHeads::repeated), by_sequences = share_of(whole, 8, KeyHeads::whole);
  const Held heads = held(by_heads, g), own = held(by_sequences, apart);
  EXPECT_EQ(heads.cache, std::uint64_t(128) * 4096 * 61 * 576 * 2);
  EXPECT_EQ(own.cache, heads.cache / 8);
  std::int64_t attention = 0;  // numbers of the products that heads divide: q up, k and v up, out
  for (const DecoderLayer& l : whole.layers) {
    const SelfAttention& a = l.attention;
    attention += a.heads * (a.q_rank * a.head_dim + a.kv_rank * (a.head_dim - a.rope_dim + a.value_dim) + a.value_dim * whole.width);
  }
  EXPECT_EQ(own.weights - heads.weights, std::uint64_t(attention * 7 / 8 * 2));
  EXPECT_LT(own.attention.bytes, heads.attention.bytes / 3) << "a GPU reads an eighth of the latents, for all heads";
  EXPECT_NEAR(own.attention.flops / heads.attention.flops, 1, 1e-9) << "an eighth of the sequences, eight times as many heads";
  EXPECT_EQ(held(by_sequences, {.batch = 129, .len = 4096, .gpus = 8, .by = AttentionBy::sequences}).cache / 17, own.cache / 16)
      << "one GPU has one more";
  EXPECT_NEAR(own.link_bytes / heads.link_bytes, 0.5, 1e-9) << "gathered and added up once a layer, not added up everywhere twice";
  EXPECT_TRUE(why_no_shares(whole, 256, KeyHeads::repeated).find("query heads") != std::string::npos);
  EXPECT_EQ(why_no_shares(whole, 256, KeyHeads::whole), "");
}

}  // namespace
}  // namespace headroom::engine
