// ModelConfig — what a model is: a pre-norm decoder with RMSNorm, rotary positions, SwiGLU and grouped key heads.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::engine {

struct ModelConfig {
  std::string name;
  std::int64_t vocab = 0, width = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  bool tied = false;  // the head's weight is the embedding's
  double rope_theta = 10000, norm_eps = 1e-5;
  std::vector<std::string> left_out;  // what the file describes and this engine does not have, in words
  bool qkv_bias = false;              // q, k, v = W·x + b, as in Qwen2
  bool qk_norm = false;               // RMSNorm over each head of q and k before they turn, as in Qwen3

  std::int64_t q_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  std::int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

void check(const ModelConfig&);  // an Error (bad_argument) that says what is allowed

const std::vector<ModelConfig>& presets();

// A preset's name, or a JSON file: ours (the fields above as keys) or a Hugging Face config.json of a Llama- or Qwen-style model.
ModelConfig model_described(std::string_view name_or_file);
ModelConfig model_from_json(std::string_view text, std::string_view name);
std::string to_json(const ModelConfig&);

std::int64_t param_count(const ModelConfig&);  // from the table of parameters

}  // namespace headroom::engine
