// Pretrained weights: a Hugging Face folder with config.json and model.safetensors, or the shards that
// model.safetensors.index.json names, of a Llama-, Mistral-, Qwen2- or Qwen3-style model.
//
// Every tensor of the files must be in the table of parameters, and every parameter in the files; an Error (bad_argument) names each
// exception. F32, BF16 and F16 are read. No weight is written before everything is checked.
#pragma once
#include <string>

#include "engine/training.h"

namespace headroom::engine {

ModelConfig pretrained_model(const std::string& folder);
void load_pretrained(Training&, const std::string& folder);  // into a Training of that model

}  // namespace headroom::engine
