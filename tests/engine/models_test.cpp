#include "engine/model/models.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "engine/model/decoder.h"
#include "engine/model/params.h"
#include "engine/model/plain_model.h"

namespace headroom::engine {
namespace {

TEST(Presets, HoldExactlyTheStatedParameters) {
  const std::pair<const char*, std::int64_t> stated[] = {{"small", 128625408}, {"medium", 423183360}, {"large", 969411840},
                                                         {"xl", 1998235200},   {"2.7B", 3406809600},  {"xl-2026", 3406809600},
                                                         {"10B", 12832823808}, {"8B", 8125698048}};
  ASSERT_EQ(presets().size(), std::size(stated));
  for (const auto& [name, count] : stated) {
    EXPECT_EQ(param_count(model_described(name)), count) << name;
    EXPECT_NO_THROW(check(model_described(name))) << name;
  }
}

TEST(Params, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  const auto table = param_table(model_described("small"));
  for (const auto& s : table) names.insert(s.full_name());
  EXPECT_EQ(names.size(), table.size());
  EXPECT_TRUE(names.contains("blocks.11.attention.qkv.weight"));
}

TEST(Models, ReadsHuggingFaceFiles) {  // the published counts of these models
  const auto llama =
      model_from_json(R"({"model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248, "num_attention_heads": 128,
    "num_hidden_layers": 126, "num_key_value_heads": 8, "vocab_size": 128256, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "tie_word_embeddings": false, "rope_scaling": null})",
                      "405B");
  EXPECT_EQ(param_count(llama), 405853388800);
  EXPECT_EQ(llama.first().attention.head_dim, 128);
  EXPECT_EQ(llama.first().attention.turned.theta, 500000);
  EXPECT_TRUE(llama.not_counted.empty());
  const auto qwen = model_from_json(R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": true})",
                                    "0.5B");
  EXPECT_TRUE(qwen.tied);
  EXPECT_TRUE(qwen.not_counted.empty());
  EXPECT_EQ(param_count(qwen), 494032768);
  const auto qwen3 = model_from_json(R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
    "num_hidden_layers": 28, "num_key_value_heads": 8, "vocab_size": 151936, "tie_word_embeddings": true, "rms_norm_eps": 1e-06,
    "rope_theta": 1000000, "hidden_act": "silu", "attention_bias": false, "sliding_window": null, "use_sliding_window": false})",
                                     "0.6B");
  EXPECT_EQ(qwen3.first().attention.head_dim, 128) << "Qwen3's own default";
  EXPECT_TRUE(qwen3.not_counted.empty());
  EXPECT_EQ(param_count(qwen3), 596049920);
  const auto newer = model_from_json(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_hidden_layers": 2, "vocab_size": 100, "rope_parameters": {"rope_theta": 5000.0, "rope_type": "yarn"}})",
                                     "newer");
  EXPECT_EQ(newer.first().attention.turned.theta, 5000);
  EXPECT_EQ(newer.norm_eps, 1e-6);
  EXPECT_NE(newer.untrained.find("'original_max_position_embeddings'"), std::string::npos)
      << "yarn without its factor: " << newer.untrained;
}

TEST(Models, GoesThroughItsOwnJson) {
  auto c = model_described("small");
  change_sizes(c, [](PlainModel& m) { m.kv_heads = 4, m.tied = true, m.rope_theta = 1234.5, m.qkv_bias = m.qk_norm = true; });
  const auto again = model_from_json(to_json(c), "other");
  EXPECT_EQ(to_json(again), to_json(c));
}

constexpr const char* small_llama = R"({"model_type":"llama","vocab_size":100,"hidden_size":64,"intermediate_size":128,
    "num_hidden_layers":3,"num_attention_heads":4,"quantization_config":{"quant_method":"awq","bits":4,"group_size":128}})";

TEST(Models, SizesSayAPlainDecoderAndNothingElse) {
  const Decoder llama = model_from_json(small_llama, "llama");
  const auto sizes = plain_of(llama);
  ASSERT_TRUE(sizes);
  EXPECT_EQ(sizes->layers, 3);
  EXPECT_EQ(sizes->kv_heads, 4);
  EXPECT_EQ(param_table(decoder_of(*sizes)).size(), param_table(llama).size());
  const std::pair<const char*, void (*)(Decoder&)> more[] = {
      {"a window in one layer", [](Decoder& d) { d.layers[2].attention.window = 8; }},
      {"another width in one layer", [](Decoder& d) { d.layers[1].ffn.width = 64; }},
      {"a norm after", [](Decoder& d) { d.norms_after = true; }},
      {"scaled positions", [](Decoder& d) { d.layers[0].attention.turned.scaling = rope::Scaling::linear; }},
      {"a cap", [](Decoder& d) { d.logit_softcap = 30; }},
      {"only counted", [](Decoder& d) { d.untrained = "a kernel for it"; }}};
  for (const auto& [what, change] : more) {
    Decoder d = llama;
    change(d);
    EXPECT_FALSE(plain_of(d)) << what;
    EXPECT_THROW(change_sizes(d, [](PlainModel& m) { m.layers = 2; }), Error) << what;
  }
}

TEST(Models, ChangedSizesAreNoLongerThoseOfTheFile) {
  Decoder d = model_from_json(small_llama, "llama");
  EXPECT_FALSE(d.source.empty());
  ASSERT_EQ(d.not_counted.size(), 1u) << "its quantisation";
  change_sizes(d, [](PlainModel& m) { m.layers = 2; });
  EXPECT_EQ(d.depth(), 2);
  EXPECT_TRUE(d.source.empty());
  EXPECT_EQ(d.not_counted.size(), 1u);
}

TEST(Models, RefusesInOneLineWhatCannotBe) {
  const char* bad[] = {"",
                       "[]",
                       "{}",
                       R"({"vocab": 10})",
                       R"({"vocab": "ten", "width": 8, "layers": 1, "heads": 1, "ffn": 8})",
                       R"({"vocab": 10, "width": 9, "layers": 1, "heads": 2, "ffn": 8})",
                       R"({"vocab": 10, "width": 8, "layers": 1, "heads": 3, "head_dim": 4, "kv_heads": 2, "ffn": 8})",
                       R"({"vocab": 10, "width": 8, "layers": 1, "heads": 1, "ffn": 8, "widht": 8})",
                       R"({"model_type": "gpt2", "hidden_size": 8})",
                       R"({"vocab": -1, "width": 8, "layers": 1, "heads": 1, "ffn": 8})"};
  for (const char* text : bad) {
    try {
      model_from_json(text, "file");
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
      EXPECT_EQ(int(e.at.code), int(Code::bad_argument)) << e.what();
    }
  }
  EXPECT_THROW(model_described("smal"), Error);
}

TEST(Models, PublishedModelsAreFoundAsPeopleTypeThem) {
  const char* typed[] = {"llama-3.1-8b", "Llama-3.1-8B", "meta-llama/Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B-Instruct", "llama_3.1_8b",
                         "llama-3-1-8b", "LLAMA 3-1 8B"};
  for (const char* name : typed) {
    const Decoder c = model_described(name);
    EXPECT_EQ(c.name, "Llama-3.1-8B") << name;
    EXPECT_EQ(param_count(c), 8030261248) << name;
  }
  for (const char* name : {"qwen3-4b", "gemma-3-4b-it", "openai/gpt-oss-20b", "mistral-7b-v0.3", "Qwen/Qwen2.5-7B-Instruct", "gpt2"})
    EXPECT_GT(param_count(model_described(name)), 0) << name;
  const auto says = [](const char* name, const char* what) {
    try {
      model_described(name);
      ADD_FAILURE() << name << " was found";
    } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what(); }
  };
  says("llama-3.1-9b", "did you mean 'llama-3.1-8b'?");
  says("mistral-7b", "'mistral-7b' is only a part of a name; give all of it, as mistral-7b-v0.1, mistral-7b-v0.3, a JSON file");
  says("Gemma-3", "give all of it, as gemma-3-1b, gemma-3-4b,");
  says("nobody/nothing", "hf download nobody/nothing config.json --local-dir DIR");
  for (const char* name : {"", "/", "-", "-instruct", "a/b/c", "nobody/", "/nothing"}) EXPECT_THROW(model_described(name), Error) << name;
}

TEST(Models, TheHubsCacheIsRead) {
  const std::filesystem::path hub = std::filesystem::path(testing::TempDir()) / "headroom_hub_cache";
  const std::filesystem::path snapshot = hub / "models--org--mine" / "snapshots" / "0123";
  std::filesystem::create_directories(snapshot);
  std::ofstream(snapshot / "config.json") << R"({"model_type":"llama","vocab_size":100,"hidden_size":64,"intermediate_size":128,
    "num_hidden_layers":2,"num_attention_heads":4})";
  setenv("HF_HUB_CACHE", hub.c_str(), 1);
  const Decoder c = model_described("org/mine");
  EXPECT_EQ(c.name, "mine");
  EXPECT_EQ(c.width, 64);
  EXPECT_THROW(model_described("org/other"), Error);
  unsetenv("HF_HUB_CACHE");
  std::filesystem::remove_all(hub);
}

// Zero heads were divided by once, before a check whether there are any.
TEST(Models, EveryNumberOfAFileIsLookedAtBeforeItIsUsed) {
  const auto whole = nlohmann::json::parse(
      R"({"vocab": 10, "width": 8, "layers": 1, "heads": 2, "kv_heads": 2, "head_dim": 4, "ffn": 8, "rope_theta": 1e4, "norm_eps": 1e-5})");
  EXPECT_GT(param_count(model_from_json(whole.dump(), "file")), 0);
  for (const auto& [key, value] : whole.items())
    for (const char* bad : {"0", "-1", "2147483648", "-9223372036854775808", "9223372036854775807", "18446744073709551615", "1e308", "-0.0",
                            "0.5", "\"2\"", "true", "[2]", "{}"})
      for (const bool alone : {false, true}) {  // without the numbers that would be worked out from it
        auto other = whole;
        other[key] = nlohmann::json::parse(bad);
        for (const char* derived : {"kv_heads", "head_dim"})
          if (alone && key != derived) other.erase(derived);
        SCOPED_TRACE(other.dump());
        try {
          EXPECT_GT(param_count(model_from_json(other.dump(), "file")), 0);
        } catch (const Error& e) {
          EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
          EXPECT_EQ(int(e.at.code), int(Code::bad_argument)) << e.what();
        }
      }
}

}  // namespace
}  // namespace headroom::engine
