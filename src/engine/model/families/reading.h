// What the readers of families share: how a config.json says heads, windows, rotary positions and the layers' function.
#pragma once
#include <string>
#include <string_view>

#include "engine/model/decoder.h"
#include "engine/model/hugging_face_keys.h"

namespace headroom::engine::families {

using Json = nlohmann::json;

void know_quantisation(KeyReader&, Decoder&);
void start_decoder(KeyReader&, Decoder&, bool tied, double eps = 1e-6);  // vocabulary, width, norms
std::int64_t layer_count(KeyReader&, const char* key, std::int64_t otherwise = 0);
SelfAttention grouped(KeyReader&, std::int64_t width, std::int64_t head_dim = 0);
std::int64_t equal_heads(std::int64_t width, std::int64_t heads);  // the dimension of each, where they share the width out
inline FeedForward gated(std::int64_t width, bool bias = false) { return {.width = width, .bias = bias}; }

void set_function(Decoder&, const std::string& word);  // one that is not known is counted, not trained
void set_function(KeyReader&, Decoder&);
// Sets how every layer turns positions, once its attention and window are known. Newer files have an object for each kind of layers, and Gemma 3 a theta.
void set_rotary(KeyReader&, const Json&, Decoder&, double theta = 10000, double sliding_theta = 0);

// The layers of which a window is kept to: layer_types says it for each, by `word`, else `slides` for layer i.
template <class Slides>
void set_windows(KeyReader& r, Decoder& d, std::int64_t window, Slides slides, std::string_view word = "sliding_attention") {
  const Json* types = r.list("layer_types");
  check(!types || types->size() == d.layers.size(), Code::bad_argument, "model: layer_types names {} layers, there are {}",
        types ? types->size() : 0, d.layers.size());
  for (std::size_t i = 0; i < d.layers.size(); ++i) {
    bool here = slides(std::int64_t(i));
    if (types) {
      const std::string type = (*types)[i].is_string() ? (*types)[i].get<std::string>() : (*types)[i].dump();
      check(type == "full_attention" || type == word, Code::bad_argument, "model: layer_types holds '{}'; full_attention and {} are known",
            type, word);
      here = type == word;
    }
    d.layers[i].attention.window = here ? window : 0;
  }
}

}  // namespace headroom::engine::families
