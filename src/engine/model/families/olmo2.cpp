// OLMo 2: norms over all heads and after each half.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void olmo2(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false, 1e-5);
  SelfAttention a = grouped(r, d.width);
  a.norm = HeadNorm::whole, a.qkv_bias = a.out_bias = r.truth("attention_bias");
  d.norms_before = false, d.norms_after = true;
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, gated(r.integer("intermediate_size"))});
  set_function(r, d), set_rotary(r, j, d);
}

}  // namespace headroom::engine::families
