// DeepSeek V2 and V3, and Kimi K2: latent attention, routed and shared experts.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void deepseek(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false);
  r.know("rope_interleave"), r.know("head_dim"), r.know("num_key_value_heads"), r.know("moe_layer_freq"), r.know("qk_head_dim");
  SelfAttention a;
  a.heads = a.kv_heads = r.integer("num_attention_heads");
  a.q_rank = r.integer("q_lora_rank", 0), a.kv_rank = r.integer("kv_lora_rank"), a.rope_dim = r.integer("qk_rope_head_dim");
  a.head_dim = r.integer("qk_nope_head_dim") + a.rope_dim, a.value_dim = r.integer("v_head_dim");
  check(a.kv_rank >= 1, Code::bad_argument, "model: 'kv_lora_rank' is {}, it must be at least 1", a.kv_rank);
  check(!r.truth("attention_bias"), Code::unsupported, "model: 'attention_bias' of {} is not known", d.family);
  check(r.integer("moe_layer_freq", 1) == 1, Code::unsupported, "model: 'moe_layer_freq' is {}, 1 is known",
        r.integer("moe_layer_freq", 1));
  const FeedForward dense = gated(r.integer("intermediate_size"));
  FeedForward experts{.width = r.integer("moe_intermediate_size"),
                      .experts = r.integer("n_routed_experts"),
                      .experts_of_token = r.integer("num_experts_per_tok", 0)};
  if (experts.experts_of_token == 0) {  // DeepseekV2Config() leaves it open
    experts.experts_of_token = experts.experts;
    d.not_counted.push_back("which experts a token takes (num_experts_per_tok is null): all are counted as active");
  }
  experts.shared_width = experts.width * r.integer("n_shared_experts", 0);
  const std::int64_t first = r.integer("first_k_dense_replace", d.family == "deepseek_v3" ? 3 : 0),
                     layers = layer_count(r, "num_hidden_layers");
  for (std::int64_t i = 0; i < layers; ++i) d.layers.push_back({a, i < first ? dense : experts});
  set_function(r, d), set_rotary(r, j, d);
  if (r.integer("num_nextn_predict_layers", 0) > 0)
    d.not_counted.push_back("the layers that predict further tokens (num_nextn_predict_layers): transformers does not load them");
}

}  // namespace headroom::engine::families
