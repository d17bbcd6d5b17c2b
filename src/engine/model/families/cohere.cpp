// Cohere's Command R: halves beside each other behind one LayerNorm without a bias, a gate, scaled logits.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void cohere(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, true);
  d.layer_norm = d.one_norm = true, d.norm_bias = false, d.norm_eps = r.number("layer_norm_eps", 1e-5);
  SelfAttention a = grouped(r, d.width);
  a.qkv_bias = a.out_bias = r.truth("attention_bias");
  if (r.truth("use_qk_norm")) a.norm = HeadNorm::whole;  // a weight for each head and element
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, gated(r.integer("intermediate_size"))});
  r.know("logit_scale");
  set_function(r, d), set_rotary(r, j, d, 500000);
}

}  // namespace headroom::engine::families
