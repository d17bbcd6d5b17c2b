// GPT-NeoX and Phi 1, 1.5 and 2: halves beside each other, biases, no gate.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void gpt_neox(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false);
  d.layer_norm = true, d.norm_eps = r.number("layer_norm_eps", 1e-5);
  SelfAttention a = grouped(r, d.width);
  a.qkv_bias = a.out_bias = r.truth("attention_bias", true);
  const FeedForward f{.width = r.integer("intermediate_size"), .gated = false, .bias = true};
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, f});
  r.truth("use_parallel_residual", true);  // each half has a norm of its own either way
  for (const char* key : {"rotary_pct", "rotary_emb_base"}) r.know(key);
  set_function(d, r.word("hidden_act", "gelu")), set_rotary(r, j, d);
}

void phi(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false);
  d.layer_norm = d.one_norm = d.head_bias = true, d.norm_eps = r.number("layer_norm_eps", 1e-5);
  SelfAttention a = grouped(r, d.width);
  a.qkv_bias = a.out_bias = true;
  check(!r.truth("qk_layernorm"), Code::unsupported, "model: 'qk_layernorm' of phi is not known");
  const FeedForward f{.width = r.integer("intermediate_size", 4 * d.width), .gated = false, .bias = true};
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, f});
  set_function(d, r.word("hidden_act", "gelu_new")), set_rotary(r, j, d);
}

}  // namespace headroom::engine::families
