// Nemotron: LayerNorm, squared ReLU without a gate.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void nemotron(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false);
  d.layer_norm = true, d.norm_eps = r.number("norm_eps", 1e-5);
  SelfAttention a = grouped(r, d.width);
  a.qkv_bias = a.out_bias = r.truth("attention_bias");
  FeedForward f{.width = r.integer("intermediate_size"), .gated = false, .bias = r.truth("mlp_bias")};
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, f});
  for (const char* key : {"rope_percent", "kv_channels"}) r.know(key);
  set_function(d, r.word("hidden_act", "relu2")), set_rotary(r, j, d);
}

}  // namespace headroom::engine::families
