// ModelConfig — what a model is: a pre-norm decoder with RMSNorm, rotary positions, SwiGLU and grouped key heads; or any other decoder
// (decoder.h), which is trained where it is dense, and else counted.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"

namespace headroom::engine {

struct Decoder;

struct ModelConfig {
  std::string name;
  std::int64_t vocab = 0, width = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  bool tied = false;  // the head's weight is the embedding's
  double rope_theta = 10000, norm_eps = 1e-5;
  std::vector<std::string> left_out;            // parts of the file that this engine lacks, in words
  bool qkv_bias = false;                        // q, k, v = W·x + b, as in Qwen2
  bool qk_norm = false;                         // RMSNorm over each head of q and k before they turn, as in Qwen3
  std::shared_ptr<const Decoder> counted = {};  // set: only counted, as this says; the sizes above are then those of its first layer
  std::shared_ptr<const Decoder> decoder = {};  // set: more than the fields above can say; they are then of its first layer
  std::string file = {};                        // Hugging Face's config.json that described it; empty: none did

  std::int64_t q_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  std::int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

void check(const ModelConfig&);  // an Error (bad_argument) that says what is allowed

const std::vector<ModelConfig>& presets();

// A preset's name, a JSON file (ours, with the fields above as keys, or a Hugging Face config.json), or a folder that holds a config.json.
ModelConfig model_described(std::string_view name_or_file);
ModelConfig model_from_json(std::string_view text, std::string_view name);
std::string to_json(const ModelConfig&);

std::int64_t param_count(const ModelConfig&);  // from the table of parameters

Decoder decoder_of(const ModelConfig&);                   // any model, layer by layer
bool same_model(const ModelConfig&, const ModelConfig&);  // whatever they are called
std::string why_not_trained(const ModelConfig&);          // a sentence that says why this engine does not train it; empty: it does
void check_pytorch_account(const ModelConfig&);  // an Error (unsupported) where a step of PyTorch's holds more than that of a Llama
void check_trained(const ModelConfig&);          // an Error (unsupported) that says what the engine lacks for one that is only counted

}  // namespace headroom::engine
