// Mixtral: Mistral with experts.
#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void mixtral(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false);
  FeedForward f{.width = r.integer("intermediate_size"),
                .experts = r.integer("num_local_experts"),
                .experts_of_token = r.integer("num_experts_per_tok")};
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {grouped(r, d.width), f});
  const std::int64_t window = r.integer("sliding_window", 0);
  set_windows(r, d, window, [&](std::int64_t) { return window > 0; });
  set_function(r, d), set_rotary(r, j, d);
}

}  // namespace headroom::engine::families
