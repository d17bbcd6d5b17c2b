#include "engine/config.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"

namespace headroom::engine {

namespace {

using Json = nlohmann::json;

ModelConfig gpt(const char* name, std::int64_t vocab, std::int64_t width, std::int64_t ffn, std::int64_t layers, std::int64_t heads) {
  return {name, vocab, width, layers, heads, heads, width / heads, ffn, false, 10000, 1e-5, {}, false, false};
}

std::int64_t integer(const Json& j, const char* key, std::int64_t otherwise = 0) {
  const auto at = j.find(key);
  if (at == j.end() || at->is_null()) return otherwise;
  check(at->is_number_integer(), Code::bad_argument, "model: '{}' is {}, it must be a whole number", key, at->dump());
  return at->get<std::int64_t>();
}
double number(const Json& j, const char* key, double otherwise) {
  const auto at = j.find(key);
  if (at == j.end() || at->is_null()) return otherwise;
  check(at->is_number(), Code::bad_argument, "model: '{}' is {}, it must be a number", key, at->dump());
  return at->get<double>();
}
std::string word(const Json& j, const char* key, const char* otherwise) {
  const auto at = j.find(key);
  if (at == j.end() || at->is_null()) return otherwise;
  check(at->is_string(), Code::bad_argument, "model: '{}' is {}, it must be a text in quotes", key, at->dump());
  return at->get<std::string>();
}
bool truth(const Json& j, const char* key) {
  const auto at = j.find(key);
  if (at == j.end() || at->is_null()) return false;
  check(at->is_boolean(), Code::bad_argument, "model: '{}' is {}, it must be true or false", key, at->dump());
  return at->get<bool>();
}

void finish(ModelConfig& c) {
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0 && c.heads > 0) {
    check(c.width % c.heads == 0, Code::bad_argument, "model: width {} is not a multiple of {} heads; give head_dim", c.width, c.heads);
    c.head_dim = c.width / c.heads;
  }
}

ModelConfig own(const Json& j) {
  ModelConfig c;
  for (const auto& [key, value] : j.items()) {
    constexpr std::string_view known[] = {"name", "vocab", "width",      "layers",   "heads",    "kv_heads", "head_dim",
                                          "ffn",  "tied",  "rope_theta", "norm_eps", "qkv_bias", "qk_norm"};
    bool found = false;
    for (auto k : known) found |= key == k;
    check(found, Code::bad_argument,
          "model: '{}' is not a key of a model file; there are name, vocab, width, layers, heads, kv_heads, head_dim, ffn, "
          "tied, rope_theta, norm_eps, qkv_bias, qk_norm",
          key);
  }
  c.vocab = integer(j, "vocab"), c.width = integer(j, "width"), c.layers = integer(j, "layers"), c.heads = integer(j, "heads");
  c.kv_heads = integer(j, "kv_heads"), c.head_dim = integer(j, "head_dim"), c.ffn = integer(j, "ffn");
  c.tied = truth(j, "tied"), c.qkv_bias = truth(j, "qkv_bias"), c.qk_norm = truth(j, "qk_norm");
  c.rope_theta = number(j, "rope_theta", c.rope_theta), c.norm_eps = number(j, "norm_eps", c.norm_eps);
  return c;
}

// What a file leaves unsaid is what the classes of transformers take then.
ModelConfig hugging_face(const Json& j) {
  const std::string type = word(j, "model_type", "llama");
  check(type == "llama" || type == "mistral" || type == "qwen2" || type == "qwen3", Code::unsupported,
        "model: model_type '{}' is not read; llama, mistral, qwen2 and qwen3 are", type);
  ModelConfig c;
  c.vocab = integer(j, "vocab_size"), c.width = integer(j, "hidden_size"), c.layers = integer(j, "num_hidden_layers");
  c.heads = integer(j, "num_attention_heads"), c.kv_heads = integer(j, "num_key_value_heads");
  c.head_dim = integer(j, "head_dim", type == "qwen3" ? 128 : 0), c.ffn = integer(j, "intermediate_size");
  c.tied = truth(j, "tie_word_embeddings");
  c.norm_eps = number(j, "rms_norm_eps", 1e-6);
  const auto rope = j.find("rope_parameters");  // newer files keep the rotary positions' numbers together
  const bool together = rope != j.end() && rope->is_object();
  c.rope_theta = number(together ? *rope : j, "rope_theta", c.rope_theta);
  c.qkv_bias = type == "qwen2" || truth(j, "attention_bias");
  c.qk_norm = type == "qwen3";
  if (truth(j, "attention_bias")) c.left_out.push_back("the bias of attention's output");
  if (truth(j, "mlp_bias")) c.left_out.push_back("the biases of the feed-forward layers");
  if (const auto act = word(j, "hidden_act", "silu"); act != "silu")
    c.left_out.push_back(fmt::format("the activation {}: it is silu here", act));
  if ((j.contains("rope_scaling") && !j["rope_scaling"].is_null()) || (together && word(*rope, "rope_type", "default") != "default"))
    c.left_out.push_back("the scaling of the rotary positions");
  if (j.contains("sliding_window") && !j["sliding_window"].is_null() && (type == "mistral" || truth(j, "use_sliding_window")))
    c.left_out.push_back("the sliding window");
  return c;
}

}  // namespace

void check(const ModelConfig& c) {
  const auto positive = [&](const char* what, std::int64_t value, std::int64_t most) {
    check(value >= 1 && value <= most, Code::bad_argument, "model {}: {} is {}, it must be 1 to {}", c.name, what, value, most);
  };
  positive("vocab", c.vocab, 1 << 24);
  positive("width", c.width, 1 << 20);
  positive("layers", c.layers, 1 << 12);
  positive("heads", c.heads, 1 << 14);
  positive("kv_heads", c.kv_heads, 1 << 14);
  positive("head_dim", c.head_dim, 256);
  positive("ffn", c.ffn, 1 << 22);
  check(c.heads % c.kv_heads == 0, Code::bad_argument, "model {}: kv_heads {} must divide heads {}", c.name, c.kv_heads, c.heads);
  check(c.head_dim % 2 == 0, Code::bad_argument, "model {}: head_dim is {}; rotary positions turn pairs, so it must be even", c.name,
        c.head_dim);
  check(c.rope_theta > 1, Code::bad_argument, "model {}: rope_theta is {}, it must be above 1", c.name, c.rope_theta);
  check(c.norm_eps >= 0 && c.norm_eps < 1, Code::bad_argument, "model {}: norm_eps is {}, it must be 0 to 1", c.name, c.norm_eps);
}

const std::vector<ModelConfig>& presets() {
  static const std::vector<ModelConfig> all = {
      gpt("small", 10000, 768, 3072, 12, 12), gpt("medium", 10000, 1024, 4096, 24, 16), gpt("large", 10000, 1280, 5120, 36, 20),
      gpt("xl", 10000, 1600, 6400, 48, 25),   gpt("2.7B", 10000, 2560, 10240, 32, 32),  gpt("8B", 151936, 4096, 11008, 34, 32),
  };
  return all;
}

ModelConfig model_from_json(std::string_view text, std::string_view name) {
  const Json j = Json::parse(text, nullptr, false);
  check(j.is_object(), Code::bad_argument, "model: '{}' is not JSON that describes one: it holds no object", name);
  ModelConfig c = j.contains("hidden_size") ? hugging_face(j) : own(j);
  c.name = j.contains("name") && j["name"].is_string() ? j["name"].get<std::string>() : std::string(name);
  finish(c);
  check(c);
  return c;
}

ModelConfig model_described(std::string_view name_or_file) {
  std::string names;
  for (const ModelConfig& c : presets()) {
    if (c.name == name_or_file) return c;
    names += (names.empty() ? "" : ", ") + c.name;
  }
  const std::filesystem::path path(name_or_file);
  std::error_code ignored;
  check(std::filesystem::is_regular_file(path, ignored), Code::bad_argument, "model: there is no '{}'; name one of {}, or a JSON file",
        name_or_file, names);
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  check(bool(in), Code::io, "model: cannot read '{}'", name_or_file);
  return model_from_json(text.str(), path.stem() == "config" ? path.parent_path().filename().string() : path.stem().string());
}

std::string to_json(const ModelConfig& c) {
  return Json{{"name", c.name},         {"vocab", c.vocab},       {"width", c.width},    {"layers", c.layers}, {"heads", c.heads},
              {"kv_heads", c.kv_heads}, {"head_dim", c.head_dim}, {"ffn", c.ffn},        {"tied", c.tied},     {"rope_theta", c.rope_theta},
              {"norm_eps", c.norm_eps}, {"qkv_bias", c.qkv_bias}, {"qk_norm", c.qk_norm}}
      .dump();
}

}  // namespace headroom::engine
