#include "engine/model/hugging_face.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/model/families/families.h"
#include "engine/model/hugging_face_keys.h"

namespace headroom::engine {

namespace {

using Json = nlohmann::json;

struct Family {
  std::string_view type;
  families::Read* read;
  const char* untrained;  // why the engine does not train it; "": it may
};
constexpr Family known_families[] = {
    {"gpt2", families::gpt2, ""},
    {"llama", families::llama, ""},
    {"mistral", families::llama, ""},
    {"qwen2", families::llama, ""},
    {"qwen3", families::llama, ""},
    {"mixtral", families::mixtral, "mixture of experts"},
    {"qwen2_moe", families::qwen_moe, "mixture of experts"},
    {"qwen3_moe", families::qwen_moe, "mixture of experts"},
    {"gemma", families::gemma, ""},
    {"gemma2", families::gemma, ""},
    {"gemma3_text", families::gemma, ""},
    {"phi3", families::phi3, ""},
    {"deepseek_v2", families::deepseek, "latent attention and mixture of experts"},
    {"deepseek_v3", families::deepseek, "latent attention and mixture of experts"},
    {"gpt_oss", families::gpt_oss, "attention sinks and mixture of experts"},
    {"kimi_k2", families::deepseek, "latent attention and mixture of experts"},
    {"olmo2", families::olmo2, ""},
    {"olmo3", families::olmo2, ""},
    {"falcon", families::falcon, "halves of a layer beside each other"},
    {"stablelm", families::stablelm, "LayerNorm around a gated layer"},
    {"gpt_neox", families::gpt_neox, "halves of a layer beside each other"},
    {"opt", families::opt, "positions that begin at 2"},
    {"bloom", families::bloom, "positions as biases of scores (ALiBi)"},
    {"mpt", families::mpt, "positions as biases of scores (ALiBi)"},
    {"phi", families::phi, "halves of a layer beside each other"},
    {"granite", families::granite, ""},
    {"smollm3", families::smollm3, ""},
    {"nemotron", families::nemotron, "squared ReLU"},
    {"cohere", families::cohere, "halves of a layer beside each other"},
    {"glm", families::glm, "rotary positions of neighbouring elements"},
    {"llama4_text", families::llama4, "mixture of experts"},
};

}  // namespace

bool is_hugging_face(const Json& j) {
  for (const char* key : {"model_type", "hidden_size", "n_embd", "architectures", "num_hidden_layers", "text_config"})
    if (j.contains(key)) return true;
  return false;
}

Decoder decoder_from(const Json& j) {
  std::vector<std::string> known{"gemma3", "llama4"};
  for (const Family& f : known_families) known.emplace_back(f.type);
  const auto at = j.find("model_type");
  check(at != j.end() && !at->is_null(), Code::bad_argument,
        "model: this config.json has no model_type, which says how its numbers are meant; known are {}", joined(known));
  check(at->is_string(), Code::bad_argument, "model: 'model_type' is {}, it must be a text in quotes", at->dump().substr(0, 80));
  const auto type = at->get<std::string>();
  if (type == "gemma3" || type == "llama4") {  // text and images: the decoder is nested
    const auto text = j.find("text_config");
    check(text != j.end() && text->is_object(), Code::bad_argument, "model: a config.json of {} needs 'text_config'", type);
    Json inner = *text;
    inner["model_type"] = type + "_text";
    for (const char* outer : {"vocab_size", "tie_word_embeddings"})
      if (!inner.contains(outer) && j.contains(outer)) inner[outer] = j[outer];
    Decoder d = decoder_from(inner);
    d.source = text_of_json(j);
    if (j.contains("vision_config")) d.not_counted.push_back("the vision tower and its projection (vision_config)");
    return d;
  }
  for (const Family& f : known_families) {
    if (f.type != type) continue;
    Decoder d;
    d.family = type;
    KeyReader r(j, type);
    r.know("model_type");
    f.read(r, j, d);
    if (const auto unread = r.finish(); !unread.empty())
      d.not_counted.push_back(fmt::format("keys that transformers' class of {} does not read: {}", type, joined(unread)));
    if (*f.untrained) d.untrained = f.untrained;
    if (d.trained()) d.untrained = untrained_head(d);
    d.source = text_of_json(j);
    check(d);
    return d;
  }
  throw Error(Code::bad_argument,
              fmt::format("model: model_type '{}' is not known{}; known are {}; of another model, headroom forecast -- says "
                          "what a program that trains it takes",
                          type.substr(0, 80), did_you_mean(type, known), joined(known)));
}

}  // namespace headroom::engine
