// GPT-2: LayerNorm, learned positions, a plain layer.
#include <cmath>

#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void gpt2(KeyReader& r, const Json&, Decoder& d) {
  d.vocab = r.integer("vocab_size", 50257), d.width = r.integer("n_embd"), d.positions = r.integer("n_positions", 1024);
  d.tied = r.truth("tie_word_embeddings", true), d.layer_norm = true;
  d.norm_eps = r.number("layer_norm_epsilon", 1e-5);
  check(!r.truth("add_cross_attention"), Code::unsupported, "model: 'add_cross_attention' is true; a decoder alone is counted");
  r.must_be("activation_function", "counted are gelu_new, gelu and relu of", {"gelu_new", "gelu", "relu", "gelu_pytorch_tanh"});
  SelfAttention a{.heads = r.integer("n_head"), .qkv_bias = true, .out_bias = true};
  a.kv_heads = a.heads, a.head_dim = a.value_dim = equal_heads(d.width, a.heads);
  FeedForward f{.width = r.integer("n_inner", 4 * d.width), .gated = false, .bias = true};
  d.layers.assign(std::size_t(layer_count(r, "n_layer")), {a, f});
  set_function(d, r.word("activation_function", "gelu_new"));
  const bool scaled = r.truth("scale_attn_weights", true), by_layer = r.truth("scale_attn_by_inverse_layer_idx");
  for (std::size_t i = 0; i < d.layers.size() && (!scaled || by_layer); ++i)
    d.layers[i].attention.scale = (scaled ? 1 / std::sqrt(double(a.head_dim)) : 1) / (by_layer ? double(i + 1) : 1);
  know_quantisation(r, d);
}

}  // namespace headroom::engine::families
