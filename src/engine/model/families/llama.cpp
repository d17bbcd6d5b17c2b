// Llama, Mistral, Qwen 2, 2.5 and 3: the same layers, and how each says its windows, biases and norms of heads.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void llama(KeyReader& r, const Json& j, Decoder& d) {
  const std::string& type = d.family;
  start_decoder(r, d, false);
  SelfAttention a = grouped(r, d.width, type == "qwen3" ? 128 : 0);
  const bool biased = type != "mistral" && type != "qwen2" && r.truth("attention_bias");
  a.qkv_bias = biased || type == "qwen2", a.out_bias = biased;
  a.norm = type == "qwen3" ? HeadNorm::each : HeadNorm::none;
  const bool mlp_bias = type == "llama" && r.truth("mlp_bias");
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, gated(r.integer("intermediate_size"), mlp_bias)});
  const bool mistral = type == "mistral";
  const std::int64_t window = r.integer("sliding_window", mistral && !j.contains("sliding_window") ? 4096 : 0),
                     from = r.integer("max_window_layers", 28);
  const bool uses = mistral ? window > 0 : r.truth("use_sliding_window") && window > 0;
  if (type != "llama") set_windows(r, d, uses ? window : 0, [&](std::int64_t i) { return uses && (mistral || i >= from); });
  set_function(r, d);
  set_rotary(r, j, d);
}

}  // namespace headroom::engine::families
