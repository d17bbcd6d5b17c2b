// Falcon: one key head or few, halves beside each other with one norm or two, no gate.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void falcon(KeyReader& r, const Json& j, Decoder& d) {
  d.vocab = r.integer("vocab_size"), d.width = r.says("n_embed") ? r.integer("n_embed") : r.integer("hidden_size");
  d.tied = r.truth("tie_word_embeddings", true), d.layer_norm = true, d.norm_eps = r.number("layer_norm_epsilon", 1e-5);
  know_quantisation(r, d);
  const bool grouped = r.truth("new_decoder_architecture"), one_head = r.truth("multi_query", true), biased = r.truth("bias"),
             beside = r.truth("parallel_attn", true);
  SelfAttention a{.heads = r.integer("num_attention_heads"), .qkv_bias = biased, .out_bias = biased};
  a.head_dim = a.value_dim = equal_heads(d.width, a.heads);
  const std::int64_t named = r.integer("num_kv_heads", a.heads);
  a.kv_heads = grouped ? named : one_head ? 1 : a.heads;
  d.one_norm = beside && r.integer("num_ln_in_parallel_attn", grouped ? 2 : 1) != 2;
  const FeedForward f{.width = r.integer("ffn_hidden_size", 4 * d.width), .gated = false, .bias = biased};
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, f});
  set_function(d, r.word("activation", "gelu"));
  r.truth("alibi");  // no weight: positions are added to scores
  set_rotary(r, j, d);
}

}  // namespace headroom::engine::families
