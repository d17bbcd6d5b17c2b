// Phi-3 and Phi-4.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void phi3(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false, 1e-5);
  const SelfAttention a = grouped(r, d.width);
  check(!r.truth("attention_bias") && !r.truth("mlp_bias"), Code::unsupported, "model: biases of phi3 are not known");
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, gated(r.integer("intermediate_size"))});
  const std::int64_t window = r.integer("sliding_window", 0);
  set_windows(r, d, window, [&](std::int64_t) { return window > 0; });
  set_function(r, d), set_rotary(r, j, d);
}

}  // namespace headroom::engine::families
