// Gemma 1, 2 and 3: scaled embeddings, norms after each half, capped scores, alternating windows.
#include <cmath>

#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void gemma(KeyReader& r, const Json& j, Decoder& d) {
  const bool third = d.family == "gemma3_text", later = third || d.family == "gemma2";
  if (third) {  // text_config of the larger ones leaves these to the class
    d.vocab = r.integer("vocab_size", 262208), d.width = r.integer("hidden_size", 2304), d.tied = r.truth("tie_word_embeddings", true);
    d.norm_eps = r.number("rms_norm_eps", 1e-6), know_quantisation(r, d);
  } else {
    start_decoder(r, d, true);
  }
  d.norms_less_one = true, d.embedding_scale = std::sqrt(double(std::max<std::int64_t>(d.width, 0)));
  SelfAttention a;
  if (later) {
    const auto capped = [&](const char* key, double otherwise) { return r.number(key, j.contains(key) || third ? 0 : otherwise); };
    const double scalar = r.number("query_pre_attn_scalar", 256);
    check(scalar > 0, Code::bad_argument, "model: 'query_pre_attn_scalar' is {}, it must be above 0", scalar);
    a.scale = 1 / std::sqrt(scalar), a.softcap = capped("attn_logit_softcapping", 50);
    d.logit_softcap = capped("final_logit_softcapping", 30);
  } else {
    for (const char* key : {"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"}) r.know(key);
  }
  a.heads = third ? r.integer("num_attention_heads", 8) : r.integer("num_attention_heads");
  a.kv_heads = r.integer("num_key_value_heads", third ? 4 : a.heads);
  a.head_dim = a.value_dim = r.integer("head_dim", 256);
  a.qkv_bias = a.out_bias = r.truth("attention_bias");
  if (third) a.norm = HeadNorm::each;
  d.norms_after = later;
  const std::int64_t ffn = third ? r.integer("intermediate_size", 9216) : r.integer("intermediate_size");
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers", third ? 26 : 0)), {a, gated(ffn)});
  if (later) {
    const std::int64_t pattern = third ? r.integer("sliding_window_pattern", r.integer("_sliding_window_pattern", 6)) : 2;
    check(pattern >= 1, Code::bad_argument, "model: 'sliding_window_pattern' is {}, it must be at least 1", pattern);
    set_windows(r, d, r.integer("sliding_window", 4096), [&](std::int64_t i) { return (i + 1) % pattern != 0; });
  }
  check(!r.truth("use_bidirectional_attention"), Code::unsupported, "model: 'use_bidirectional_attention' is true; decoders are counted");
  r.know("hidden_act"), r.know("hidden_activation");
  set_function(d, r.word(later ? "hidden_activation" : "hidden_act", "gelu_pytorch_tanh"));
  third ? set_rotary(r, j, d, 1e6, 1e4) : set_rotary(r, j, d);
}

}  // namespace headroom::engine::families
