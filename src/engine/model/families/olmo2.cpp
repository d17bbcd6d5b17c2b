// OLMo 2 and 3: norms over all heads and after each half; OLMo 3 has windows in three layers of four, whose rotary positions nothing scales.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void olmo2(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false, 1e-5);
  SelfAttention a = grouped(r, d.width);
  a.norm = HeadNorm::whole, a.qkv_bias = a.out_bias = r.truth("attention_bias");
  d.norms_before = false, d.norms_after = true;
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, gated(r.integer("intermediate_size"))});
  set_function(r, d);
  if (d.family == "olmo2") return set_rotary(r, j, d);
  set_windows(r, d, r.integer("sliding_window", 4096), [](std::int64_t i) { return (i + 1) % 4 != 0; });
  const double theta = r.number("rope_theta", 500000);
  set_rotary(r, j, d, theta, theta);
}

}  // namespace headroom::engine::families
