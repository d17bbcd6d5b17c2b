// Llama 4's decoder: experts in every so many layers, beside one that every token takes; three layers of four attend within chunks.
#include <set>

#include "engine/model/families/families.h"
#include "engine/model/families/reading.h"

namespace headroom::engine::families {

namespace {

// A token sees its own chunk of so many positions, so a cache holds no more: a window is as large. Layers without positions see all.
void set_chunks(KeyReader& r, const Json& j, Decoder& d) {
  const auto said = j.find("attention_chunk_size");
  const std::int64_t chunk = said != j.end() && said->is_null() ? 0 : r.integer("attention_chunk_size", 8192),
                     interval = r.integer("no_rope_layer_interval", 4);
  r.know("attention_chunk_size");
  check(chunk >= 0, Code::bad_argument, "model: 'attention_chunk_size' is {}, it must be at least 0", chunk);
  check(interval >= 1, Code::bad_argument, "model: 'no_rope_layer_interval' is {}, it must be at least 1", interval);
  const Json* turned = r.list("no_rope_layers");  // 1: positions turn this layer
  if (turned && turned->empty()) turned = nullptr;
  check(!turned || turned->size() == d.layers.size(), Code::bad_argument, "model: no_rope_layers names {} layers, there are {}",
        turned ? turned->size() : 0, d.layers.size());
  set_windows(
      r, d, chunk, [&](std::int64_t i) { return turned ? (*turned)[std::size_t(i)] != 0 : (i + 1) % interval != 0; }, "chunked_attention");
}

}  // namespace

void llama4(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false, 1e-5);
  SelfAttention a = grouped(r, d.width, 128);
  a.qkv_bias = a.out_bias = r.truth("attention_bias");
  FeedForward experts{.width = r.integer("intermediate_size"),
                      .experts = r.integer("num_local_experts", 16),
                      .experts_of_token = r.integer("num_experts_per_tok", 1)};
  experts.shared_width = experts.width;
  const FeedForward dense = gated(r.integer("intermediate_size_mlp", 16384));
  const std::int64_t layers = layer_count(r, "num_hidden_layers"), step = r.integer("interleave_moe_layer_step", 1);
  check(step >= 1, Code::bad_argument, "model: 'interleave_moe_layer_step' is {}, it must be at least 1", step);
  const Json* named = r.list("moe_layers");
  std::set<std::int64_t> routed;
  for (std::int64_t i = step - 1; i < layers && !(named && !named->empty()); i += step) routed.insert(i);
  if (named)
    for (const Json& i : *named) {
      check(i.is_number_integer(), Code::bad_argument, "model: moe_layers holds {}, it must hold whole numbers", i.dump().substr(0, 80));
      routed.insert(i.get<std::int64_t>());
    }
  for (std::int64_t i = 0; i < layers; ++i) d.layers.push_back({a, routed.contains(i) ? experts : dense});
  for (const char* key :
       {"use_qk_norm", "attn_temperature_tuning", "floor_scale", "attn_scale", "for_llm_compressor", "moe_intermediate_size"})
    r.know(key);  // norms without weights: no parameter
  set_chunks(r, j, d);
  set_function(r, d), set_rotary(r, j, d, 500000);
}

}  // namespace headroom::engine::families
