// gpt-oss: sinks, alternating windows, biased experts.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void gpt_oss(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false);
  SelfAttention a = grouped(r, d.width, 64);
  a.qkv_bias = a.out_bias = r.truth("attention_bias", true), a.sinks = true;
  FeedForward f{.width = r.integer("intermediate_size"),
                .bias = true,
                .experts = r.integer("num_local_experts"),
                .experts_of_token = r.integer("num_experts_per_tok"),
                .router_bias = true};
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, f});
  set_windows(r, d, r.integer("sliding_window", 128), [](std::int64_t i) { return i % 2 == 0; });
  set_function(r, d), set_rotary(r, j, d);
}

}  // namespace headroom::engine::families
