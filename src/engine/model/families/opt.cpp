// OPT: as GPT-2, with positions that begin at 2.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void opt(KeyReader& r, const Json&, Decoder& d) {
  start_decoder(r, d, true);
  d.layer_norm = true, d.norm_eps = 1e-5;
  const std::int64_t narrow = r.integer("word_embed_proj_dim", d.width);
  check(narrow == d.width, Code::unsupported,
        "model: 'word_embed_proj_dim' is {}, and the width {}: embeddings of another width are not counted", narrow, d.width);
  check(r.truth("layer_norm_elementwise_affine", true), Code::unsupported,
        "model: norms without weights ('layer_norm_elementwise_affine') are not counted");
  d.positions = r.integer("max_position_embeddings", 2048) + 2;
  const bool biased = r.truth("enable_bias", true);
  SelfAttention a{.heads = r.integer("num_attention_heads"), .qkv_bias = biased, .out_bias = biased};
  a.kv_heads = a.heads, a.head_dim = a.value_dim = equal_heads(d.width, a.heads);
  d.final_norm = r.truth("do_layer_norm_before", true) && !r.truth("_remove_final_layer_norm");
  const FeedForward f{.width = r.integer("ffn_dim", 4 * d.width), .gated = false, .bias = biased};
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, f});
  for (const char* key : {"dropout", "layerdrop", "init_std", "activation_dropout", "prefix"}) r.know(key);
  set_function(d, r.word("activation_function", "relu"));
}

}  // namespace headroom::engine::families
