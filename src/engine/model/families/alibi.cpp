// BLOOM and MPT: positions are added to scores, so no weight and no turned copy holds them.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void bloom(KeyReader& r, const Json&, Decoder& d) {
  d.vocab = r.integer("vocab_size", 250880);
  d.width = r.says("n_embed") ? r.integer("n_embed") : r.integer("hidden_size");
  d.tied = r.truth("tie_word_embeddings", true), d.layer_norm = d.embedding_norm = true, d.norm_eps = r.number("layer_norm_epsilon", 1e-5);
  know_quantisation(r, d);
  SelfAttention a{.heads = r.says("n_head") ? r.integer("n_head") : r.integer("num_attention_heads"), .qkv_bias = true, .out_bias = true};
  a.kv_heads = a.heads, a.head_dim = a.value_dim = equal_heads(d.width, a.heads);
  const FeedForward f{.width = 4 * d.width, .gated = false, .bias = true};
  d.layers.assign(std::size_t(layer_count(r, r.says("n_layer") ? "n_layer" : "num_hidden_layers")), {a, f});
  for (const char* key :
       {"apply_residual_connection_post_layernorm", "slow_but_exact", "seq_length", "attention_softmax_in_fp32", "bias_dropout_fusion",
        "masked_softmax_fusion", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id"})
    r.know(key);
  set_function(d, "gelu_new");
}

void mpt(KeyReader& r, const Json&, Decoder& d) {
  d.vocab = r.integer("vocab_size", 50368), d.width = r.integer("d_model", 2048);
  d.tied = r.truth("tie_word_embeddings", true), d.layer_norm = true, d.norm_bias = false,
  d.norm_eps = r.number("layer_norm_epsilon", 1e-5);
  know_quantisation(r, d);
  check(r.truth("no_bias", true), Code::unsupported, "model: 'no_bias' is false; mpt's class has no biases");
  if (const Json* how = r.object("attn_config")) {
    KeyReader of(*how, "attn_config");
    check(!of.truth("qk_ln"), Code::unsupported, "model: 'qk_ln' of mpt is not known");
    check(of.word("attn_type", "multihead_attention") == "multihead_attention", Code::unsupported,
          "model: 'attn_type' is {}, multihead_attention is known", of.word("attn_type", ""));
  }
  SelfAttention a{.heads = r.integer("n_heads", 16)};
  a.kv_heads = a.heads, a.head_dim = a.value_dim = equal_heads(d.width, a.heads);
  check(r.integer("expansion_ratio", 4) == 4, Code::unsupported, "model: 'expansion_ratio' is {}; mpt's class has 4",
        r.integer("expansion_ratio", 4));
  d.layers.assign(std::size_t(layer_count(r, "n_layers", 24)), {a, FeedForward{.width = 4 * d.width, .gated = false}});
  for (const char* key : {"max_seq_len", "learned_pos_emb", "init_device", "logit_scale", "embedding_fraction", "norm_type", "emb_pdrop",
                          "verbose", "init_config", "tokenizer_name", "use_flash_attention"})
    r.know(key);
  set_function(d, "gelu");
}

}  // namespace headroom::engine::families
