// StableLM: a gated layer between LayerNorms, a part of each head turned.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void stablelm(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false);
  d.layer_norm = true, d.norm_eps = r.number("layer_norm_eps", 1e-5);
  SelfAttention a = grouped(r, d.width);
  a.qkv_bias = r.truth("use_qkv_bias");
  if (r.truth("qk_layernorm")) a.norm = HeadNorm::whole;  // a weight for each head and element
  d.one_norm = r.truth("use_parallel_residual");
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, gated(r.integer("intermediate_size"))});
  set_function(r, d), set_rotary(r, j, d);
}

}  // namespace headroom::engine::families
