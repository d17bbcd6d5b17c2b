// Forecasts through the C interface: the engine's own numbers, a versioned answer, and a sentence for every request that is wrong.
#include "engine/forecast/forecast.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "engine/model/models.h"
#include "engine/model/plain_model.h"
#include "headroom/headroom.h"
#include "pytorch/language_model.h"

namespace headroom::capi {
namespace {

using Json = nlohmann::json;
using JsonCall = headroom_status (*)(const char*, char**);

Json ask(JsonCall call, const char* request) {
  char* answer = nullptr;
  EXPECT_EQ(call(request, &answer), HEADROOM_OK) << request << ": " << headroom_last_error();
  const Json out = answer ? Json::parse(answer) : Json();
  headroom_text_free(answer);
  return out;
}

void refuse(JsonCall call, const char* request, headroom_status status, const char* words) {
  char* answer = nullptr;
  EXPECT_EQ(call(request, &answer), status) << (request ? request : "NULL");
  EXPECT_EQ(answer, nullptr);
  EXPECT_NE(std::string(headroom_last_error()).find(words), std::string::npos) << headroom_last_error() << " should say " << words;
}

TEST(CForecast, IsTheEnginesForecast) {
  const Json a =
      ask(headroom_forecast,
          R"({"version": 1, "model": "small", "batch": 4, "len": 256, "precision": "bf16", "keep": "no-cheap", "device": "h200"})");
  engine::Recipe r;
  r.model = engine::model_described("small");
  r.batch = 4, r.len = 256, r.precision = {DType::bf16}, r.keep = {engine::Keep::no_cheap};
  const Device h200 = device_described("h200");
  const engine::Forecast f = engine::forecast(r, h200, 1);
  EXPECT_EQ(a.at("version"), 1);
  EXPECT_EQ(a.at("schema_version"), 1);
  EXPECT_EQ(a.at("params"), 128625408);
  EXPECT_EQ(a.at("peak_bytes"), f.peak_bytes);
  EXPECT_EQ(a.at("standing_bytes"), f.standing_bytes);
  EXPECT_EQ(a.at("timeline").size(), f.events.size());
  std::size_t highest = 0, at_peak = 0;
  for (const Json& m : a.at("timeline")) highest = std::max(highest, m.at("live_bytes").get<std::size_t>());
  EXPECT_EQ(highest, f.peak_bytes);
  for (const Json& c : a.at("components")) at_peak += c.at("at_peak_bytes").get<std::size_t>();
  EXPECT_EQ(at_peak, f.peak_bytes);
  EXPECT_TRUE(a.at("fits").get<bool>());
  EXPECT_GT(a.at("ms_at_least").get<double>(), 0);
  EXPECT_LT(a.at("ms_low").get<double>(), a.at("ms").get<double>());
  EXPECT_LT(a.at("ms").get<double>(), a.at("ms_high").get<double>());
  EXPECT_EQ(a.at("ms_by"), f.expected->by);
  EXPECT_EQ(a.at("at_peak_bytes").at("saved"), f.bytes_at_peak(Phase::saved));
  EXPECT_EQ(a.at("at_peak_bytes").size(), std::size_t(phase_count));
  EXPECT_LT(a.at("forward_peak_bytes"), a.at("forward_backward_peak_bytes"));
  EXPECT_EQ(a.at("host_bytes"), 0);
  const Json host = ask(headroom_forecast,
                        R"({"model": "small", "batch": 4, "len": 256, "precision": "bf16", "keep": "host:no-cheap", "device": "h200"})");
  r.keep.host = int(r.model.depth());
  EXPECT_EQ(host.at("host_bytes"), engine::forecast(r, h200, 1).host_bytes);
  EXPECT_GT(host.at("host_bytes"), 0);
  EXPECT_LT(host.at("peak_bytes"), a.at("peak_bytes"));
  EXPECT_EQ(host.at("keep"), "host:no-cheap");
  EXPECT_FALSE(
      ask(headroom_forecast, R"({"model": "small", "device": "h200", "memory_bytes": 1000000000, "timeline": 0})").at("fits").get<bool>());
}

TEST(CForecast, WithoutATimeItSaysWhy) {
  const Json a = ask(headroom_forecast, R"({"model": "mixtral-8x7b", "batch": 1, "len": 64, "precision": "bf16", "device": "h200"})");
  EXPECT_TRUE(a.at("ms").is_null());
  EXPECT_NE(a.at("ms_by").get<std::string>().find("only counted"), std::string::npos) << a.at("ms_by");
}

TEST(CForecast, AModelMayBeAnObject) {
  const Json a = ask(headroom_forecast, R"({"model": {"model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "tie_word_embeddings": false, "hidden_act": "silu"},
    "batch": 2, "len": 64, "device": "cpu"})");
  EXPECT_EQ(a.at("config").at("kv_heads"), 2);
  EXPECT_GT(a.at("peak_bytes"), 0);
}

TEST(CForecast, MicroBatchesShareTheBatchOut) {
  const Json whole = ask(headroom_forecast, R"({"model": "small", "batch": 8, "len": 128, "device": "h200"})");
  const Json parts = ask(headroom_forecast, R"({"model": "small", "batch": 8, "len": 128, "device": "h200", "micro_batches": 4})");
  EXPECT_LT(parts.at("peak_bytes"), whole.at("peak_bytes"));
  EXPECT_EQ(parts.at("batch"), 8);
}

TEST(CForecast, AWrongRequestIsAnsweredInOneLine) {
  const auto bad = [](const char* request, const char* words) { refuse(headroom_forecast, request, HEADROOM_BAD_ARGUMENT, words); };
  bad(nullptr, "request is NULL");
  bad("", "the request");
  bad("[]", "it must be an object");
  bad("{", "the request");
  bad(R"({"batch": 4})", "has no model");
  bad(R"({"modle": "small"})", "the request has an unknown key 'modle'; did you mean 'model'?");
  bad(R"({"model": "small", "prescision": "bf16"})", "did you mean 'precision'");
  bad(R"({"model": "small", "precision": "bf61"})", "there is no 'bf61'");
  bad(R"({"model": "small", "batch": 0})", "batch is 0");
  bad(R"({"model": "small", "batch": "4"})", "it must be a whole number");
  for (const char* large : {"18446744073709551615", "4611686018427387904", "-9223372036854775808", "1180591620717411303424"})
    bad(fmt::format(R"({{"model": "small", "len": {}}})", large).c_str(), "it must be below 2^62");
  bad(R"({"model": "small", "memory_bytes": 0})", "memory_bytes is 0, it must be at least 1");
  bad(R"({"model": "small", "device": ""})", "device is empty");
  bad(R"({"model": {"model_type": "llama", "vocab_size": 10, "hiden_size": 8}})", "it has 'hiden_size'");
  bad(R"({"model": "small", "batch": 1.5})", "it must be a whole number");
  bad(R"({"model": "small", "device": "h2000"})", "h2000");
  bad(R"({"model": "small", "keep": "nothing"})", "there is no 'nothing'");
  bad(R"({"model": "small", "gradients": "typo"})", "there is no 'typo'");
  bad(R"({"model": "small", "batch": 3, "micro_batches": 2})", "cannot be shared out");
  bad(R"({"model": "small", "precision": "tf32", "device": "cpu"})", "tf32 needs a GPU");
  bad(R"({"model": 3})", "model is 3");
  bad(R"({"model": "smal"})", "smal");
  for (const char* request : {R"({"model": "sm\u0000\u001b[31mall"})", R"({"model": "small", "device": "sm\u0000\u001b[31mall"})"})
    bad(request, R"(there is no 'sm\x00\x1b[31mall'; name one of )");
  refuse(headroom_forecast, R"({"version": 2, "model": "small"})", HEADROOM_UNSUPPORTED, "version 2");
  EXPECT_EQ(headroom_forecast(R"({"model": "small"})", nullptr), HEADROOM_BAD_ARGUMENT);
  bad((std::string(R"({"model": )") + std::string(100000, '[')).c_str(), "the request");
  headroom_text_free(nullptr);
}

TEST(CPlan, SaysWhatFits) {
  const Json a = ask(headroom_plan, R"({"model": "small", "batch": 4, "len": 256, "device": "h200", "precision": "bf16", "most": 3,
    "attention": "flash", "keep": ["everything", "input"], "masters": "whole", "gradients": ["whole", "half"], "update": "after"})");
  EXPECT_EQ(a.at("version"), 1);
  EXPECT_TRUE(a.at("fits").get<bool>());
  EXPECT_EQ(a.at("rows").size(), 3u);
  const Json none = ask(headroom_plan, R"({"model": "small", "batch": 1, "len": 64, "device": "h200", "memory_bytes": 1000,
    "precision": "bf16", "attention": "flash", "keep": "input", "masters": "whole", "gradients": "whole", "update": "after"})");
  EXPECT_FALSE(none.at("fits").get<bool>());
  refuse(headroom_plan, R"({"model": "small", "attention": ["flsh"]})", HEADROOM_BAD_ARGUMENT, "there is no 'flsh'");
  refuse(headroom_plan, R"({"model": "small", "device": "cpu", "gpus": 2})", HEADROOM_BAD_ARGUMENT, "--gpus 2: this is a CPU");
  refuse(headroom_plan, R"({"model": "small", "device": "h200", "gpus": 5000})", HEADROOM_BAD_ARGUMENT,
         "gpus is 5000, it must be at most 4096");
  refuse(headroom_plan, R"({"model": "small", "precision": []})", HEADROOM_BAD_ARGUMENT, "empty list");
}

// As `headroom memory model` does.
TEST(CForecast, CountsTheUsualPrecisionOfADevice) {
  const auto answer = [](auto call, const char* request) { return ask(call, request).dump(); };
  EXPECT_EQ(ask(headroom_forecast, R"({"model": "small", "device": "h200"})").at("settings").at("precision"), "bf16");
  EXPECT_EQ(ask(headroom_forecast, R"({"model": "small", "device": "cpu"})").at("settings").at("precision"), "fp32");
  EXPECT_EQ(answer(headroom_memory_as_pytorch, R"({"model": "small", "device": "h200"})"),
            answer(headroom_memory_as_pytorch, R"({"model": "small", "device": "h200", "precision": "bf16"})"));
}

TEST(CMemoryAsPytorch, IsTheStudysAccount) {
  const Json a =
      ask(headroom_memory_as_pytorch, R"({"model": "small", "batch": 2, "len": [128, 256], "precision": "bf16", "attention": "flash"})");
  EXPECT_EQ(a.at("version"), 1);
  ASSERT_EQ(a.at("rows").size(), 2u);
  pytorch::LanguageModel m;
  const auto c = sizes_of(engine::model_described("small"));
  m.vocab = c.vocab, m.width = c.width, m.ffn = c.ffn, m.layers = c.layers, m.heads = c.heads, m.batch = 2, m.len = 256;
  m.precision = {DType::bf16}, m.fused_attention = true;
  const auto account = pytorch::account(m, pytorch::workspace_bytes(90));
  EXPECT_EQ(a.at("rows").at(1).at("train_peak_bytes"), account.train_peak_bytes);
  EXPECT_FALSE(a.at("rows").at(1).at("components").empty());
  refuse(headroom_memory_as_pytorch, R"({"model": "small", "device": "cpu"})", HEADROOM_BAD_ARGUMENT, "CUDA allocator");
  // Its norms and positions are not those of the account: no number is better than another model's.
  refuse(
      headroom_memory_as_pytorch,
      R"({"model": {"model_type": "opt", "vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "ffn_dim": 64}})",
      HEADROOM_UNSUPPORTED, "PyTorch's step of given is not known");
  refuse(headroom_memory_as_pytorch, R"({"model": "small", "adam": "eve"})", HEADROOM_BAD_ARGUMENT, "there is no 'eve'");
  refuse(headroom_memory_as_pytorch, R"({"model": "small", "keeps": "input"})", HEADROOM_BAD_ARGUMENT, "an unknown key 'keeps'");
  const Json larger =
      ask(headroom_memory_as_pytorch, R"({"model": "small", "len": 256, "batch": 2, "precision": "bf16", "attention": "flash",
    "workspace_bytes": 134217728})");
  EXPECT_EQ(larger.at("rows").at(0).at("train_peak_bytes"), pytorch::account(m, 128u << 20).train_peak_bytes);
}

}  // namespace
}  // namespace headroom::capi
