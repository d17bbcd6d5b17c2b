#include "engine/params.h"

#include <fmt/format.h>

#include <cmath>

namespace headroom::engine {

std::string ParamSpec::full_name() const { return layer < 0 ? std::string(name) : fmt::format("blocks.{}.{}", layer, name); }

std::vector<ParamSpec> param_table(const ModelConfig& c) {
  constexpr double std = 0.02;                                         // GPT-2's
  const double into_stream = std / std::sqrt(2.0 * double(c.layers));  // 2·layers matrices add to the residual stream
  std::vector<ParamSpec> table;
  table.reserve(std::size_t(9 * c.layers + 3));
  table.push_back({Role::embedding, "embedding.weight", -1, {c.vocab, c.width}, 0, std, true, c.tied});
  for (int l = 0; l < int(c.layers); ++l) {
    table.push_back({Role::norm1, "norm1.weight", l, {c.width}, 1, 0, false, false});
    table.push_back({Role::qkv, "attention.qkv.weight", l, {c.qkv_width(), c.width}, 0, std, true, true});
    if (c.qkv_bias) table.push_back({Role::qkv_bias, "attention.qkv.bias", l, {c.qkv_width()}, 0, 0, false, false});
    if (c.qk_norm) {
      table.push_back({Role::q_norm, "attention.q_norm.weight", l, {c.head_dim}, 1, 0, false, false});
      table.push_back({Role::k_norm, "attention.k_norm.weight", l, {c.head_dim}, 1, 0, false, false});
    }
    table.push_back({Role::out, "attention.out.weight", l, {c.width, c.q_width()}, 0, into_stream, true, true});
    table.push_back({Role::norm2, "norm2.weight", l, {c.width}, 1, 0, false, false});
    table.push_back({Role::gate_up, "ffn.gate_up.weight", l, {2 * c.ffn, c.width}, 0, std, true, true});
    table.push_back({Role::down, "ffn.down.weight", l, {c.width, c.ffn}, 0, into_stream, true, true});
  }
  table.push_back({Role::final_norm, "final_norm.weight", -1, {c.width}, 1, 0, false, false});
  if (!c.tied) table.push_back({Role::head, "head.weight", -1, {c.vocab, c.width}, 0, std, true, true});
  return table;
}

std::int64_t param_count(const ModelConfig& c) {
  std::int64_t sum = 0;
  for (const ParamSpec& s : param_table(c)) sum += s.shape.count();
  return sum;
}

}  // namespace headroom::engine
