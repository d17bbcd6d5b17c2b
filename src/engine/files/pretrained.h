// Weights as Hugging Face keeps them: a folder with config.json and model.safetensors, or the shards that
// model.safetensors.index.json names, of any model that this engine trains.
//
// Reading: every tensor of the files must be in the table of parameters, and every parameter in the files; an Error (bad_argument)
// names each exception. F32, BF16 and F16 are read. No weight is written before everything is checked.
// Writing: FP32, under the names that transformers gives the model's class.
#pragma once
#include <string>

#include "engine/pass/training.h"

namespace headroom::engine {

Decoder pretrained_model(const std::string& folder);
void load_pretrained(Training&, const std::string& folder);  // into a Training of that model

// Whether a model can be written there, or an Error that says why not: before anything is trained for it. A folder that holds
// another program's model is left alone.
void check_pretrained_place(const Decoder&, const std::string& folder);
void save_pretrained(Training&, const std::string& folder);  // every rank calls; the first writes

}  // namespace headroom::engine
