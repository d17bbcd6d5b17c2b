// A Hugging Face config.json as a Decoder. Every key is either understood, known to change neither bytes nor arithmetic, or refused
// by its name; a file without model_type is refused. What a file leaves unsaid is what the classes of transformers take then.
#pragma once
#include <nlohmann/json.hpp>

#include "engine/model/decoder.h"

namespace headroom::engine {

bool is_hugging_face(const nlohmann::json&);  // by its keys
Decoder decoder_from(const nlohmann::json&);

}  // namespace headroom::engine
