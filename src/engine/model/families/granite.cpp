// Granite, SmolLM 3 and GLM: Llama's layers, with factors, with layers that know no positions, with biases of q, k and v.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void granite(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false);
  SelfAttention a = grouped(r, d.width);
  a.qkv_bias = a.out_bias = r.truth("attention_bias");
  a.scale = r.number("attention_multiplier", 1);
  check(a.scale > 0, Code::bad_argument, "model: 'attention_multiplier' is {}, it must be above 0", a.scale);
  d.embedding_scale = r.number("embedding_multiplier", 1);
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, gated(r.integer("intermediate_size"), r.truth("mlp_bias"))});
  set_function(r, d), set_rotary(r, j, d);
  if (r.number("residual_multiplier", 1) != 1 && d.untrained.empty()) d.untrained = "a factor of what a layer adds (residual_multiplier)";
  if (r.number("logits_scaling", 1) != 1 && d.untrained.empty()) d.untrained = "divided logits (logits_scaling)";
}

void smollm3(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, true);
  SelfAttention a = grouped(r, d.width);
  a.qkv_bias = a.out_bias = r.truth("attention_bias");
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, gated(r.integer("intermediate_size"), r.truth("mlp_bias"))});
  const std::int64_t window = r.integer("sliding_window", 0);
  const bool uses = r.truth("use_sliding_window") && window > 0;
  r.know("max_window_layers");  // a key of Qwen's class, which these files were made from
  const std::int64_t every = r.integer("no_rope_layer_interval", 4);
  const Json* turned = r.list("no_rope_layers");  // 1: this layer is turned
  set_windows(r, d, uses ? window : 0, [&](std::int64_t) { return uses; });
  set_function(r, d), set_rotary(r, j, d, 2e6);
  for (std::size_t i = 0; i < d.layers.size() && d.untrained.empty(); ++i)
    if (turned && i < turned->size() ? (*turned)[i] == Json(0) : !turned && every > 0 && (std::int64_t(i) + 1) % every == 0)
      d.untrained = "layers without positions (no_rope_layers)";
}

void glm(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false, 1.5625e-07);
  SelfAttention a = grouped(r, d.width, 128);
  a.qkv_bias = r.truth("attention_bias", true);
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, gated(r.integer("intermediate_size"))});
  set_function(r, d), set_rotary(r, j, d);
}

}  // namespace headroom::engine::families
