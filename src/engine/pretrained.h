// Weights that others trained: a Hugging Face folder with config.json and model.safetensors, or the shards that
// model.safetensors.index.json names, of a Llama-, Mistral-, Qwen2- or Qwen3-style model.
//
// Every tensor of the files has a place in the table of parameters or is named in an Error (bad_argument), and so is every place
// that no tensor fills; F32, BF16 and F16 are read. Nothing is written to any weight before all of this has been checked.
#pragma once
#include <string>

#include "engine/training.h"

namespace headroom::engine {

ModelConfig pretrained_model(const std::string& folder);
void load_pretrained(Training&, const std::string& folder);  // into a Training of that model

}  // namespace headroom::engine
