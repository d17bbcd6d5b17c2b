// The readers of config.json, one file for each family: keys in, a decoder's layers out. A family is a file, its name here, and a row of the table
// in hugging_face.cpp.
#pragma once
#include <nlohmann/json.hpp>

#include "engine/model/decoder.h"
#include "engine/model/hugging_face_keys.h"

namespace headroom::engine::families {

using Read = void(KeyReader&, const nlohmann::json&, Decoder&);

Read gpt2, llama, mixtral, qwen_moe, gemma, phi3, deepseek, gpt_oss, olmo2;
Read falcon, stablelm, gpt_neox, opt, bloom, mpt, phi, granite, smollm3, nemotron, cohere, glm, llama4;

}  // namespace headroom::engine::families
