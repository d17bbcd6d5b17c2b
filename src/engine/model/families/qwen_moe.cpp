// Qwen 2 MoE and Qwen 3 MoE: experts in some layers, with a shared one in the second.
#include <set>

#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

void qwen_moe(KeyReader& r, const Json& j, Decoder& d) {
  const bool second = d.family == "qwen2_moe";
  start_decoder(r, d, false);
  SelfAttention a = grouped(r, d.width);
  if (second) {
    a.qkv_bias = r.truth("qkv_bias", true);
  } else {
    a.norm = HeadNorm::each, a.qkv_bias = a.out_bias = r.truth("attention_bias");
  }
  FeedForward experts{.width = r.integer("moe_intermediate_size"),
                      .experts = r.says("num_experts") ? r.integer("num_experts") : r.integer("num_local_experts"),
                      .experts_of_token = r.integer("num_experts_per_tok")};
  if (second) experts.shared_width = r.integer("shared_expert_intermediate_size"), experts.shared_gate = true;
  const FeedForward dense = gated(r.integer("intermediate_size", experts.width));
  const std::int64_t step = r.integer("decoder_sparse_step", 1);
  check(step >= 1, Code::bad_argument, "model: 'decoder_sparse_step' is {}, it must be at least 1", step);
  std::set<std::int64_t> only_dense;
  if (const Json* list = r.list("mlp_only_layers"))
    for (const Json& i : *list) {
      check(i.is_number_integer(), Code::bad_argument, "model: mlp_only_layers holds {}, it must hold whole numbers", i.dump());
      only_dense.insert(i.get<std::int64_t>());
    }
  const std::int64_t layers = layer_count(r, "num_hidden_layers");
  for (std::int64_t i = 0; i < layers; ++i) d.layers.push_back({a, !only_dense.contains(i) && (i + 1) % step == 0 ? experts : dense});
  const std::int64_t window = r.integer("sliding_window", 0), from = r.integer("max_window_layers", 28);
  const bool uses = r.truth("use_sliding_window") && window > 0;
  set_windows(r, d, uses ? window : 0, [&](std::int64_t i) { return uses && i >= from; });
  set_function(r, d), set_rotary(r, j, d);
}

}  // namespace headroom::engine::families
