#include "engine/model/plain_model.h"

namespace headroom::engine {

void check(const PlainModel& m) {
  describe(m, [&]<class T>(const T& value, const Description& d) {
    if constexpr (std::is_same_v<T, std::int64_t>)
      check(value >= d.allowed.low && value <= d.allowed.high, Code::bad_argument, "model {}: {} is {}, it must be {} to {}", m.name,
            d.name, value, d.allowed.low, d.allowed.high);
  });
  check(m.heads % m.kv_heads == 0, Code::bad_argument, "model {}: kv_heads {} must divide heads {}", m.name, m.kv_heads, m.heads);
  check(m.head_dim % 2 == 0, Code::bad_argument, "model {}: head_dim is {}; rotary positions rotate pairs, so it must be even", m.name,
        m.head_dim);
  check(m.rope_theta > 1, Code::bad_argument, "model {}: rope_theta is {}, it must be above 1", m.name, m.rope_theta);
  check(m.norm_eps >= 0 && m.norm_eps < 1, Code::bad_argument, "model {}: norm_eps is {}, it must be 0 to 1", m.name, m.norm_eps);
}

Decoder decoder_of(const PlainModel& m) {
  Decoder d;
  d.name = m.name;
  d.family = "headroom";
  d.vocab = m.vocab;
  d.width = m.width;
  d.tied = m.tied;
  d.norm_eps = m.norm_eps;
  const SelfAttention a{.heads = m.heads,
                        .kv_heads = m.kv_heads,
                        .head_dim = m.head_dim,
                        .value_dim = m.head_dim,
                        .qkv_bias = m.qkv_bias,
                        .norm = m.qk_norm ? HeadNorm::each : HeadNorm::none,
                        .turned = {.theta = m.rope_theta}};
  d.layers.assign(std::size_t(m.layers), {a, {.width = m.ffn}});
  return d;
}

PlainModel sizes_of(const Decoder& d) {
  PlainModel m{.name = d.name, .vocab = d.vocab, .width = d.width, .layers = d.depth(), .tied = d.tied, .norm_eps = d.norm_eps};
  if (!d.layers.empty()) {
    const auto& [a, f] = d.first();
    m.heads = a.heads, m.kv_heads = a.kv_heads, m.head_dim = a.head_dim, m.ffn = f.width;
    m.rope_theta = a.turned.theta, m.qkv_bias = a.qkv_bias, m.qk_norm = a.norm == HeadNorm::each;
  }
  return m;
}

std::optional<PlainModel> plain_of(const Decoder& d) {
  const PlainModel m = sizes_of(d);
  Decoder said = decoder_of(m);
  said.family = d.family, said.not_counted = d.not_counted, said.source = d.source;
  if (said == d) return m;
  return {};
}

Decoder with_sizes(const Decoder& before, const PlainModel& m) {
  Decoder d = decoder_of(m);
  d.not_counted = before.not_counted;
  return d;
}

}  // namespace headroom::engine
