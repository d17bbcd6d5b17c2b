#include "engine/model/decoder.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "engine/forecast/forecast.h"
#include "engine/model/hugging_face.h"
#include "engine/model/published.h"
#include "engine/pass/inference.h"
#include "ops/copy/copy.h"
#include "ops/experts/experts.h"
#include "ops/layernorm/layernorm.h"
#include "ops/rope/rope.h"
#include "tests/engine/dense.h"

namespace headroom::engine {
namespace {

// A wet context: its ops would run.
struct Wet {
  std::vector<std::byte> memory = std::vector<std::byte>(1 << 16);
  Arena arena{memory.data(), memory.size()};
  Device device;
  Context ctx{arena, device};
  Tensor make(DType type, Shape shape) { return arena.make("x", type, shape); }
};

Decoder model_published(std::string_view name) {
  const Published* p = published_model(name);
  check(p, Code::bad_argument, "no such model");
  return model_from_json(p->config, p->name);
}

TEST(Decoder, HasThePublishedParameters) {
  for (const Published& p : published_models()) {
    const Decoder c = model_from_json(p.config, p.name);
    EXPECT_EQ(param_count(c), p.parameters) << p.name;
    EXPECT_EQ(param_count(model_from_json(to_json(c), "again")), p.parameters) << p.name << " through its own JSON";
  }
  const auto active = [](const char* name) { return double(active_param_count(model_published(name))) / 1e9; };
  EXPECT_NEAR(active("Mixtral-8x7B"), 12.9, 0.1) << "as published";
  EXPECT_NEAR(active("Qwen3-30B-A3B"), 3.3, 0.1);
  EXPECT_NEAR(active("Qwen3-235B-A22B"), 22, 0.3);
  EXPECT_NEAR(active("DeepSeek-V3"), 37, 0.7);
  EXPECT_NEAR(active("gpt-oss-120b"), 5.1, 0.7);
}

// As their makers call them on the hub.
TEST(Decoder, IsFoundByItsNamesOnTheHub) {
  constexpr std::pair<const char*, const char*> names[] = {
      {"meta-llama/Meta-Llama-3-8B-Instruct", "Llama-3-8B"},
      {"meta-llama/Llama-2-7b-chat-hf", "Llama-2-7b"},
      {"mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"},
      {"mistralai/Mixtral-8x7B-v0.1", "Mixtral-8x7B"},
      {"mistralai/Mixtral-8x22B-Instruct-v0.1", "Mixtral-8x22B"},
      {"mistralai/Mistral-Nemo-Instruct-2407", "Mistral-Nemo"},
      {"microsoft/Phi-3-mini-4k-instruct", "Phi-3-mini"},
      {"allenai/OLMo-2-1124-7B-Instruct", "OLMo-2-7B"},
      {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", "TinyLlama-1.1B"},
      {"meta-llama/Llama-4-Scout-17B-16E-Instruct", "Llama-4-Scout"},
      {"stabilityai/stablelm-3b-4e1t", "stablelm-3b"},
      {"deepseek-ai/DeepSeek-R1", "DeepSeek-V3"},
      {"google/gemma-3-27b-it", "gemma-3-27b"},
      {"openai-community/gpt2", "gpt2"},
  };
  for (const auto& [hub, name] : names) {
    const Published* p = published_model(hub);
    ASSERT_NE(p, nullptr) << hub;
    EXPECT_EQ(p->name, name) << hub;
  }
  for (const char* other : {"", "-", "instruct", "gpt2-items", "Phi-3-mini-128k-instruct", "Mistral-7B-Instruct-v0.9", "basellama-2-7b"})
    EXPECT_EQ(published_model(other), nullptr) << other;
}

TEST(Decoder, WhatIsDenseIsTrainedTheRestSaysWhyNot) {
  for (const char* trained : {"Llama-2-7b", "Mistral-Nemo", "Qwen2.5-7B", "Qwen3-8B", "Phi-3-medium", "phi-4"}) {
    EXPECT_TRUE(model_published(trained).trained()) << trained;
    EXPECT_TRUE(plain_of(model_published(trained))) << trained << " is as plain as ours";
  }
  for (const char* trained : {"Llama-3.1-8B", "Mistral-7B-v0.1", "Phi-3-mini", "gpt2", "gpt2-xl", "gemma-2b", "gemma-2-2b", "gemma-3-1b",
                              "gemma-3-4b", "OLMo-2-7B"}) {
    EXPECT_TRUE(model_published(trained).trained()) << trained;
    EXPECT_FALSE(plain_of(model_published(trained))) << trained;
  }
  const std::pair<const char*, const char*> counted[] = {{"Mixtral-8x7B", "mixture of experts"},
                                                         {"DeepSeek-V3", "latent attention"},
                                                         {"gpt-oss-20b", "sinks"},
                                                         {"Phi-4-mini", "without 'max_position_embeddings'"}};
  for (const auto& [name, why] : counted) {
    const Decoder c = model_published(name);
    ASSERT_FALSE(c.trained()) << name;
    try {
      Wet wet;
      Training t(Recipe(c, 1, 8), wet.ctx);
      ADD_FAILURE() << name << " was trained";
    } catch (const Error& e) {
      EXPECT_EQ(e.at.code, Code::unsupported);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(model_published("gemma-3-4b").not_counted.size(), 1u) << "the vision tower";
  EXPECT_EQ(model_published("DeepSeek-V3").not_counted.size(), 2u) << "quantised weights, layers that predict further";
}

TEST(Decoder, ArithmeticThatChangesNoBytesIsReadToo) {
  const auto& of = model_published;
  const rope::Positions llama = of("Llama-3.1-8B").layers[0].attention.turned;
  EXPECT_EQ(llama, (rope::Positions{.theta = 500000, .scaling = rope::Scaling::llama3, .factor = 8, .original = 8192}));
  const Decoder gemma2 = of("gemma-2-2b"), gemma3 = of("gemma-3-4b"), gpt2 = of("gpt2"), phi3 = of("Phi-3-mini");
  EXPECT_EQ(gemma2.layers[0].attention.softcap, 50);
  EXPECT_EQ(gemma2.logit_softcap, 30);
  EXPECT_EQ(gemma2.layers[0].attention.scale, 1.0 / 16);
  EXPECT_EQ(gemma2.embedding_scale, 48) << "the root of its width";
  EXPECT_EQ(gemma2.layers[0].ffn.function, activation::Function::gelu_tanh);
  EXPECT_EQ(gemma3.logit_softcap, 0);
  EXPECT_EQ(gemma3.layers[0].attention.turned, rope::Positions{.theta = 10000}) << "of a layer with a window";
  EXPECT_EQ(gemma3.layers[5].attention.turned, (rope::Positions{.theta = 1e6, .scaling = rope::Scaling::linear, .factor = 8}));
  EXPECT_EQ(gpt2.norm_eps, 1e-5);
  EXPECT_EQ(gpt2.layers[3].ffn.function, activation::Function::gelu_tanh);
  EXPECT_EQ(phi3.norm_eps, 1e-5);
  EXPECT_EQ(phi3.layers[3].attention.window, 2047);
  const std::string mistral = R"({"model_type":"mistral","vocab_size":100,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
    "num_attention_heads":4)";
  EXPECT_EQ(model_from_json(mistral + "}", "m").layers[0].attention.window, 4096) << "its class's, where nothing is said";
  EXPECT_EQ(model_from_json(mistral + R"(,"sliding_window":null})", "m").layers[0].attention.window, 0);
  EXPECT_FALSE(model_from_json(mistral + R"(,"rope_scaling":{"type":"yarn"}})", "m").trained()) << "a factor is not guessed";
}

TEST(Decoder, KnowsWhoseOpsAreALlamas) {
  const auto as_llama = [](const char* name) { return computes_as_llama(model_published(name)); };
  for (const char* same : {"Llama-3.1-8B", "Mistral-7B-v0.1", "Qwen3-8B", "Phi-3-mini"}) EXPECT_TRUE(as_llama(same)) << same;
  for (const char* other : {"gpt2", "gemma-2-2b", "OLMo-2-7B"}) EXPECT_FALSE(as_llama(other)) << other;
}

TEST(Decoder, WindowsAreKeptByTheLayersThatHaveThem) {
  const auto windows = [](const char* name) {
    std::string each;
    for (const auto& l : model_published(name).layers) each += l.attention.window > 0 ? 's' : 'f';
    return each;
  };
  EXPECT_EQ(windows("gemma-2-2b").substr(0, 6), "sfsfsf");
  EXPECT_EQ(windows("gemma-3-1b").substr(0, 12), "sssssfsssssf");
  EXPECT_EQ(windows("gpt-oss-20b").substr(0, 4), "sfsf");
}

TEST(Decoder, ChunksOfLlama4AreAsItsFileSays) {
  const std::string file = R"({"model_type":"llama4_text","vocab_size":100,"hidden_size":64,"intermediate_size":64,"num_hidden_layers":4,
    "num_attention_heads":4,"num_key_value_heads":2,"num_local_experts":2)";
  const auto windows = [&](const std::string& more) {
    std::vector<std::int64_t> all;
    for (const DecoderLayer& l : model_from_json(file + more + "}", "m").layers) all.push_back(l.attention.window);
    return all;
  };
  using All = std::vector<std::int64_t>;
  EXPECT_EQ(windows(""), (All{8192, 8192, 8192, 0}));
  EXPECT_EQ(windows(R"(,"attention_chunk_size":512,"no_rope_layers":[])"), (All{512, 512, 512, 0}));
  EXPECT_EQ(windows(R"(,"no_rope_layers":[0,1,1,0])"), (All{0, 8192, 8192, 0}));
  EXPECT_EQ(windows(R"(,"no_rope_layer_interval":2)"), (All{8192, 0, 8192, 0}));
  EXPECT_EQ(windows(R"(,"attention_chunk_size":null)"), (All{0, 0, 0, 0}));
  EXPECT_EQ(windows(R"(,"layer_types":["full_attention","chunked_attention","full_attention","chunked_attention"])"),
            (All{0, 8192, 0, 8192}));
  EXPECT_THROW(windows(R"(,"no_rope_layers":[1,1])"), Error);
}

TEST(Decoder, TheCacheKnowsGroupsLatentsAndWindows) {
  const DType bf16 = DType::bf16;
  const auto cache = [&](const char* name, std::int64_t len) { return cache_bytes(model_published(name), 1, len, bf16); };
  EXPECT_EQ(cache("Llama-3.1-8B", 1), 32 * 2 * 8 * 128 * 2) << "128 KiB a token";
  EXPECT_EQ(cache("Llama-2-7b", 1), 32 * 2 * 4096 * 2) << "512 KiB a token";
  EXPECT_EQ(cache("DeepSeek-V3", 1000), 61 * 576 * 2 * 1000) << "a latent of 512 and 64 rotary";
  EXPECT_EQ(cache("gemma-2-2b", 100000), std::int64_t(13) * (4096 + 100000) * 2 * 4 * 256 * 2);
  EXPECT_EQ(cache("Llama-4-Scout", 100000), std::int64_t(36 * 8192 + 12 * 100000) * 2 * 8 * 128 * 2) << "chunks in three layers of four";
  EXPECT_EQ(cache("Llama-4-Scout", 8000), std::int64_t(48) * 8000 * 2 * 8 * 128 * 2);
  for (const char* name : {"Llama-3.1-8B", "DeepSeek-V2-Lite", "gpt-oss-20b"}) {  // the dry run holds exactly that
    const Decoder d = model_published(name);
    const Device device;
    Ledger ledger;
    Arena arena(&ledger);
    Context ctx{arena, device};
    run_inference(d, {2, 300, *precision_named("bf16")}, Inference::prefill, ctx);
    std::int64_t bytes = 0;
    for (const Entry& e : ledger.entries())
      if (std::string_view(e.name.text) == "cache") bytes += std::int64_t(e.bytes);
    EXPECT_EQ(bytes, cache_bytes(d, 2, 300, bf16)) << name;
  }
}

TEST(Counted, AnOpWithoutAKernelSaysSoWhereItWouldRun) {
  Wet wet;
  const auto f32 = [&](Shape s) { return wet.make(DType::f32, s); };
  const auto refused = [](const auto& call, const char* why) {
    try {
      call();
      ADD_FAILURE() << "it ran: " << why;
    } catch (const Error& e) {
      EXPECT_EQ(e.at.code, Code::unsupported) << e.what();
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  const experts::Routing routing{f32({4, 8}), f32({4, 2}), wet.make(DType::i32, {4, 2})};
  refused([&] { experts::choose(routing, wet.ctx, "choose"); }, "counted, not computed");
  refused([&] { experts::gather(f32({4, 6}), routing, f32({8, 6}), wet.ctx, "gather"); }, "counted, not computed");
  matmul::Product several{f32({4, 6}), f32({6, 5}), f32({4, 5})};
  EXPECT_TRUE(matmul::supports(several, wet.device));
  several.more_bytes = 120;
  EXPECT_FALSE(matmul::supports(several, wet.device));
  refused([&] { matmul::multiply(several, wet.ctx); }, "several experts");
  const Tensor x = f32({4, 6}), weight = f32({6}), rows = f32({4});
  refused([&] { layernorm::forward({x, weight, {}, x, rows, rows}, wet.ctx); }, "without a bias");
  refused([&] { rope::rotate(f32({1, 4, 2, 3}), f32({4, 3}), rope::Turn::forward, wet.ctx); }, "in pairs");
  refused([&] { copy::join_heads(x, wet.ctx, "k"); }, "latent attention");
}

Forecast forecast_of(const Decoder& d, Keep keep = Keep::everything) {
  Recipe r(d, 2, 16, *precision_named("bf16"), {keep});
  return forecast(r, Device{}, 1);
}

double calls(const Forecast& f, std::string_view op) {
  double n = 0;
  for (const OpCall& c : f.walk.steps) n += std::string_view(c.op.text) == op ? c.times : 0;
  return n;
}

// Both halves of a layer read the first one's norm: it is there as long as the second half computes, and its gradient until the first one is done.
TEST(Counted, ANormOfBothHalvesIsThereUntilBothHaveReadIt) {
  Decoder one = dense_models().back().model;
  one.untrained = "a kernel for it";
  Decoder two = one;
  one.one_norm = true;
  for (const Keep keep : {Keep::everything, Keep::no_cheap, Keep::no_attention_inputs, Keep::input}) {
    const Forecast f = forecast_of(one, keep);
    int norms = 0, gradients = 0, without = 0, beside = 0;
    for (const Ledger::Event& e : f.events) {
      const std::string_view name = f.entries[e.entry].name.text;
      if (name == "norm1.y") norms += e.take ? 1 : -1;
      if (name == "norm1.dy") gradients += e.take ? 1 : -1;
      EXPECT_NE(name, "norm2.y");
      if (e.take && name == "ffn.act" && keep != Keep::everything) (norms > 0 ? beside : without) += 1;
      if (e.take && name == "attention.dqkv") { EXPECT_EQ(gradients, 1); }
    }
    EXPECT_EQ(beside, keep == Keep::everything ? 0 : 2 * one.depth()) << "forward, and again in backward";
    EXPECT_EQ(without, 0);
    EXPECT_EQ(norms, 0);
    EXPECT_LT(calls(f, "rmsnorm.forward"), calls(forecast_of(two, keep), "rmsnorm.forward"));
  }
}

TEST(Counted, ANormOfTheEmbeddingAndABiasOfTheHeadAreOps) {
  Decoder plain = dense_models().front().model;
  plain.untrained = "a kernel for it";
  Decoder more = plain;
  more.embedding_norm = more.head_bias = true;
  const Forecast before = forecast_of(plain), f = forecast_of(more);
  EXPECT_EQ(calls(f, "layernorm.forward"), calls(before, "layernorm.forward") + 1);
  EXPECT_EQ(calls(f, "layernorm.backward"), calls(before, "layernorm.backward") + 1);
  EXPECT_EQ(calls(f, "bias"), calls(before, "bias") + 1);
  EXPECT_EQ(calls(f, "bias.backward"), calls(before, "bias.backward") + 1);
  const auto held = [&](const Forecast& of) {
    return std::count_if(of.entries.begin(), of.entries.end(),
                         [](const Entry& e) { return std::string_view(e.name.text) == "embedding.y"; });
  };
  EXPECT_EQ(held(f), 1) << "the norm's backward reads it";
  EXPECT_EQ(held(before), 0);
}

// OPT may end without a norm: then the head reads the stream, and a tied one has a group of no parameters.
TEST(Counted, AModelMayEndWithoutANorm) {
  Decoder normed = dense_models().front().model;
  normed.untrained = "a kernel for it";
  Decoder bare = normed;
  bare.final_norm = false;
  ASSERT_TRUE(bare.tied);
  const Forecast before = forecast_of(normed), f = forecast_of(bare);
  EXPECT_EQ(calls(f, "layernorm.forward"), calls(before, "layernorm.forward") - 1);
  EXPECT_EQ(calls(f, "layernorm.backward"), calls(before, "layernorm.backward") - 1);
  EXPECT_EQ(calls(f, "head.dx"), calls(before, "head.dx"));
  EXPECT_LT(f.peak_bytes, before.peak_bytes);
  Arena arena;
  const Device device;
  Context ctx{arena, device};
  EXPECT_NO_THROW(run_inference(bare, {1, 8, *precision_named("bf16")}, Inference::decode, ctx));
  Recipe shared(bare, 2, 16, *precision_named("bf16"));
  shared.ranks = {2, Sharding::everything};
  EXPECT_NO_THROW((void)forecast(shared, device, 1));
}

// DeepSeek's attention: what the latents' norms find is kept with them; without gradients its five products wait for the update.
TEST(Counted, NormsOfLatentsHaveTheirDeviations) {
  Decoder d = dense_models().back().model;
  d.untrained = "latent attention";
  for (DecoderLayer& l : d.layers) {
    l.attention = {.heads = 2, .kv_heads = 2, .head_dim = 12, .value_dim = 8};
    l.attention.q_rank = 6, l.attention.kv_rank = 10, l.attention.rope_dim = 4;
  }
  for (const Keep keep : {Keep::everything, Keep::no_cheap, Keep::input}) {
    const Forecast f = forecast_of(d, keep);
    for (const char* name : {"attention.q_latent_norm.rstd", "attention.kv_latent_norm.rstd"}) {
      const auto made = std::count_if(f.entries.begin(), f.entries.end(), [&](const Entry& e) {
        return std::string_view(e.name.text) == name && e.shape == Shape{32} && e.dtype == DType::f32;
      });
      EXPECT_EQ(made, (keep == Keep::input ? 2 : 1) * d.depth()) << name;
    }
  }
  Recipe r(d, 2, 16, *precision_named("bf16"));
  r.holding = {.masters = Masters::halves, .updating = Updating::during, .gradients = Gradients::none};
  const Forecast f = forecast(r, Device{}, 1);
  EXPECT_EQ(calls(f, "attention.kv_up.dw"), 0) << "the product updates its weight";
  EXPECT_EQ(calls(f, "attention.kv_up.dx"), double(d.depth()));
}

// A product of experts is one op, with the bytes of every weight that its rows reach.
TEST(Counted, AProductOfExpertsReadsTheWeightsThatItsRowsReach) {
  Decoder d = dense_models().back().model;
  d.untrained = "experts";
  for (DecoderLayer& l : d.layers) l.ffn = {.width = 24, .experts = 8, .experts_of_token = 2};
  for (const std::int64_t len : {1, 3, 16}) {
    const Forecast f = forecast(Recipe(d, 1, len, *precision_named("bf16")), Device{}, 1);
    const std::int64_t routed = 2 * len;
    const double reached = 8 * (1 - std::pow(0.75, double(len)));  // by tokens that choose two of eight each, evenly and by themselves
    EXPECT_EQ(calls(f, "experts.down"), double(d.depth()));
    for (const OpCall& c : f.walk.steps) {
      if (std::string_view(c.op.text) == "experts.down") {
        EXPECT_EQ(c.cost.bytes, std::round(2 * (double(routed * 24 + routed * d.width) + reached * double(24 * d.width))));
      }
      if (std::string_view(c.op.text) == "experts.down.dw") {
        EXPECT_EQ(c.cost.bytes, 2 * double(routed * 24 + routed * d.width) + 4 * double(8 * 24 * d.width)) << "every expert has a gradient";
      }
    }
  }
}

TEST(Counted, StepsAndInferenceOfEveryPublishedModelAddUp) {
  const Device h200 = device_described("h200");
  for (const Published& p : published_models()) {
    SCOPED_TRACE(p.name);
    const Decoder c = model_from_json(p.config, p.name);
    Recipe r{c, 1, 256, *precision_named("bf16")};
    const Forecast all = forecast(r, h200, 1);
    r.keep = {Keep::input};
    const Forecast least = forecast(r, h200, 1);
    EXPECT_LT(least.peak_bytes, all.peak_bytes);
    const double state = (c.tied ? 18.0 : 18.0) * double(p.parameters);
    EXPECT_NEAR(double(all.standing_bytes) / state, 1, 0.12) << "18 bytes a weight, 16 of an embedding that is only looked up";
    EXPECT_GT(all.flops, all.model_flops * 0.9);
    r.keep = {Keep::everything}, r.ranks = {8, Sharding::everything};
    const std::size_t shared = forecast(r, h200, 1).standing_bytes;  // an eighth, and whole groups on loan
    EXPECT_GE(shared, all.standing_bytes / 8);
    EXPECT_LT(shared, all.standing_bytes * 7 / 10);
    std::size_t peaks[2];
    for (const Inference how : {Inference::prefill, Inference::decode}) {
      Arena arena;
      Context ctx{arena, h200};
      run_inference(c, {1, 1024, *precision_named("bf16")}, how, ctx);
      peaks[int(how)] = arena.peak();
      EXPECT_GT(arena.peak(), std::size_t(2 * p.parameters + cache_bytes(c, 1, 1024, DType::bf16)));
    }
    EXPECT_GT(peaks[0], peaks[1]);
  }
}

TEST(Counted, AStepIsNoLongerThanTheLearnedPositions) {
  EXPECT_NO_THROW(check(Recipe(model_published("opt-125m"), 1, 2048)));
  EXPECT_THROW(check(Recipe(model_published("opt-125m"), 1, 4096)), Error);
}

void expect_refused(const std::string& config, const std::string& word, Code code = Code::bad_argument) {
  try {
    model_from_json(config, "file");
    ADD_FAILURE() << "accepted: " << config;
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_EQ(int(e.at.code), int(code)) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    EXPECT_NE(what.find(word), std::string::npos) << what;
  }
}

// In published files: keys that transformers reads by no class, other names, and what a class leaves open.
TEST(Decoder, AKeyThatChangesNothingIsPassedOverAndNamed) {
  const auto with = [](const char* name, const char* more) {
    nlohmann::json config;
    for (const Published& p : published_models())
      if (std::string_view(p.name) == name) config = nlohmann::json::parse(p.config);
    config.update(nlohmann::json::parse(more));
    return model_from_json(config.dump(), name);
  };
  const std::tuple<const char*, const char*, const char*> unread[] = {
      {"gpt2", R"({"n_special":0,"predict_special_tokens":true})", "n_special, predict_special_tokens"},
      {"gemma-2-2b", R"({"sliding_window_size":4096})", "sliding_window_size"},
      {"phi-4", R"({"full_attn_mod":1,"interpolate_factor":1})", "full_attn_mod, interpolate_factor"},
      {"Llama-2-7b", R"({"is_llama_config":true,"_num_labels":2})", "_num_labels, is_llama_config"},
      {"Llama-2-7b", R"({"model_max_length":4096,"pad_token":"x"})", "model_max_length, pad_token"}};
  for (const auto& [name, more, words] : unread) {
    const Decoder c = with(name, more);
    EXPECT_EQ(param_count(c), param_count(model_published(name)));
    ASSERT_EQ(c.not_counted.size(), 1u) << name;
    EXPECT_NE(c.not_counted[0].find(words), std::string::npos) << c.not_counted[0];
  }
  const char* smollm3 = R"({"architectures":["SmolLM3ForCausalLM"],"attention_bias":false,"hidden_act":"silu","hidden_size":2048,
      "intermediate_size":11008,"max_window_layers":28,"mlp_bias":false,"model_type":"smollm3","no_rope_layer_interval":4,"num_attention_heads":16,
      "num_hidden_layers":36,"num_key_value_heads":4,"pretraining_tp":2,"rms_norm_eps":1e-6,"rope_theta":5000000.0,"sliding_window":null,
      "use_sliding_window":false,"vocab_size":128256})";
  EXPECT_EQ(param_count(model_from_json(smollm3, "as published")), 3075098624);
  const Decoder olmo3 =
      model_from_json(R"({"architectures":["Olmo3ForCausalLM"],"model_type":"olmo3","hidden_size":4096,"intermediate_size":11008,
      "num_attention_heads":32,"num_hidden_layers":32,"vocab_size":100278,"rms_norm_eps":1e-6,"rope_theta":500000,"sliding_window":4096,
      "rope_scaling":{"rope_type":"yarn","factor":8.0,"original_max_position_embeddings":8192},"tie_word_embeddings":false})",
                      "as transformers counts it");
  EXPECT_EQ(param_count(olmo3), 7298011136);
  EXPECT_TRUE(olmo3.trained()) << olmo3.untrained;
  for (std::size_t i = 0; i < olmo3.layers.size(); ++i) {
    const SelfAttention& a = olmo3.layers[i].attention;
    EXPECT_EQ(a.window, i % 4 == 3 ? 0 : 4096) << i;
    EXPECT_EQ(a.turned.theta, 500000) << i;
    EXPECT_EQ(a.turned.scaling, i % 4 == 3 ? rope::Scaling::yarn : rope::Scaling::none) << i;
  }
  nlohmann::json kimi;
  for (const Published& p : published_models())
    if (std::string_view(p.name) == "DeepSeek-V3") kimi = nlohmann::json::parse(p.config);
  kimi["model_type"] = "kimi_k2";
  EXPECT_EQ(param_count(model_from_json(kimi.dump(), "Kimi's name of the same layers")), param_count(model_published("DeepSeek-V3")));
  nlohmann::json saved_anew;
  for (const Published& p : published_models())
    if (std::string_view(p.name) == "Qwen3-30B-A3B") saved_anew = nlohmann::json::parse(p.config);
  saved_anew["num_local_experts"] = saved_anew["num_experts"], saved_anew.erase("num_experts");
  EXPECT_EQ(param_count(model_from_json(saved_anew.dump(), "by transformers 5")), param_count(model_published("Qwen3-30B-A3B")));
  expect_refused(
      R"({"model_type":"qwen2","vocab_size":100,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,
    "dual_chunk_attention_config":{"chunk_size":8}})",
      "dual_chunk_attention_config", Code::unsupported);
  const Decoder open = model_from_json(R"({"model_type":"deepseek_v2","vocab_size":64,"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":2,"num_attention_heads":2,"q_lora_rank":16,"kv_lora_rank":8,"qk_nope_head_dim":8,"qk_rope_head_dim":4,"v_head_dim":8,
    "moe_intermediate_size":16,"n_routed_experts":4,"num_experts_per_tok":null})",
                                       "open");
  EXPECT_NE(open.not_counted.at(0).find("num_experts_per_tok is null"), std::string::npos);
}

TEST(Decoder, RefusesWhatItDoesNotKnowByName) {
  const std::string llama = R"({"model_type":"llama","vocab_size":100,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,)";
  expect_refused(llama + R"("num_attention_heads":4,"num_kv_heads":2})", "did you mean 'num_key_value_heads'");
  expect_refused(llama + R"("num_attention_head":4})", "it has 'num_attention_head'");
  expect_refused(llama + R"("num_attention_heads":4,"num_experts":8})", "num_experts");
  expect_refused(llama + R"("num_attention_heads":4,"rope_scaling":{"rope_type":"spiral"}})", "spiral");
  expect_refused(llama + R"("num_attention_heads":"four"})", "whole number");
  expect_refused(llama + R"("num_attention_heads":0})", "at least 1");
  EXPECT_NO_THROW(model_from_json(llama + R"("num_attention_heads":4,"some_new_flag":false,"another":null,"list":[]})", "file"));
  expect_refused(R"({"hidden_size":64,"num_local_experts":8,"vocab_size":10})", "model_type");
  expect_refused(R"({"model_type":"gpt3","n_embd":64})", "gpt2");
  expect_refused(R"({"model_type":"llama4","hidden_size":64})", "llama4");
  expect_refused(R"({"model_type":"gemma3","hidden_size":64})", "text_config");
  expect_refused(R"({"model_type":7})", "text in quotes");
  expect_refused(R"({"vocab":10,"width":8,"layers":1,"heads":1,"ffn":8,"num_experts":4})", "num_experts");
  const std::string gpt2 = R"({"model_type":"gpt2","n_embd":64,"n_layer":1,"n_head":4,)";
  expect_refused(gpt2 + R"("activation_function":"gleu"})", "gleu");
  expect_refused(llama + R"("num_attention_heads":4,"layer_types":["full","full"]})", "is not known of llama");
  // What is known and not counted is another thing than what is not known.
  expect_refused(gpt2 + R"("add_cross_attention":true})", "a decoder alone is counted", Code::unsupported);
  expect_refused(R"({"model_type":"phi3","vocab_size":100,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
    "num_attention_heads":4,"attention_bias":true})",
                 "biases of phi3", Code::unsupported);
  // Every number of every published file, made impossible: a refusal in one line, never a count.
  for (const Published& p : published_models()) {
    const nlohmann::json whole = nlohmann::json::parse(p.config);
    for (const auto& [key, value] : whole.items()) {
      if (!value.is_number_integer()) continue;
      for (const nlohmann::json& bad :
           {nlohmann::json(0), nlohmann::json(-1), nlohmann::json(1), nlohmann::json("8"), nlohmann::json(1e30), nlohmann::json(2147483647),
            nlohmann::json(-9223372036854775807 - 1), nlohmann::json(9223372036854775807), nlohmann::json(18446744073709551615u)}) {
        nlohmann::json other = whole;
        other[key] = bad;
        try {
          EXPECT_GT(param_count(model_from_json(other.dump(), p.name)), 0) << p.name << " " << key;
        } catch (const Error& e) { EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what(); }
      }
    }
  }
}

}  // namespace
}  // namespace headroom::engine
