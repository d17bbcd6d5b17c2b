#include "engine/decoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace headroom::engine {

namespace {

struct Table {
  std::vector<ParamSpec> specs;
  double into_stream;
  int layer = -1, group = 0;

  void matrix(Role role, const char* name, Shape shape, bool writes_stream = false) {
    add(role, name, shape, 0, writes_stream ? into_stream : 0.02, true, true);
  }
  void vector(Role role, const char* name, std::int64_t n, double mean = 0) { add(role, name, {n}, mean, 0, false, false); }
  void add(Role role, const char* name, Shape shape, double mean, double std, bool decay, bool multiplied) {
    ParamSpec s{};
    s.role = role, s.name = name, s.layer = layer, s.group = group, s.looked_up = role == Role::embedding, s.shape = shape, s.mean = mean,
    s.std = std, s.decay = decay, s.multiplied = multiplied;
    specs.push_back(s);
  }
  void norm(bool biased, Role role, const char* weight, const char* bias, std::int64_t n) {
    vector(role, weight, n, 1);
    if (biased) vector(role, bias, n);
  }
};

void add_attention(Table& t, const Decoder& d, const SelfAttention& a) {
  if (a.latent()) {
    const std::int64_t nope = a.head_dim - a.rope_dim;
    if (a.q_rank > 0) {
      t.matrix(Role::qkv, "attention.q_down.weight", {a.q_rank, d.width});
      t.vector(Role::q_norm, "attention.q_latent_norm.weight", a.q_rank, 1);
      t.matrix(Role::qkv, "attention.q_up.weight", {a.q_width(), a.q_rank});
    } else {
      t.matrix(Role::qkv, "attention.q.weight", {a.q_width(), d.width});
    }
    t.matrix(Role::qkv, "attention.kv_down.weight", {a.kv_rank + a.rope_dim, d.width});
    t.vector(Role::k_norm, "attention.kv_latent_norm.weight", a.kv_rank, 1);
    t.matrix(Role::qkv, "attention.kv_up.weight", {a.heads * (nope + a.value_dim), a.kv_rank});
  } else {
    const std::int64_t width = a.q_width() + a.k_width() + a.v_width();
    t.matrix(Role::qkv, "attention.qkv.weight", {width, d.width});
    if (a.qkv_bias) t.vector(Role::qkv_bias, "attention.qkv.bias", width);
    if (a.norm != HeadNorm::none) {
      const bool each = a.norm == HeadNorm::each;
      t.vector(Role::q_norm, "attention.q_norm.weight", each ? a.head_dim : a.q_width(), 1);
      t.vector(Role::k_norm, "attention.k_norm.weight", each ? a.head_dim : a.k_width(), 1);
    }
  }
  if (a.sinks) t.vector(Role::qkv_bias, "attention.sinks", a.heads);
  t.matrix(Role::out, "attention.out.weight", {d.width, a.out_width()}, true);
  if (a.out_bias) t.vector(Role::qkv_bias, "attention.out.bias", d.width);
}

void add_ffn(Table& t, const Decoder& d, const FeedForward& f) {
  if (f.experts == 0) {
    t.matrix(Role::gate_up, f.gated ? "ffn.gate_up.weight" : "ffn.up.weight", {f.in_width(f.width), d.width});
    if (f.bias) t.vector(Role::qkv_bias, "ffn.gate_up.bias", f.in_width(f.width));
    t.matrix(Role::down, "ffn.down.weight", {d.width, f.width}, true);
    if (f.bias) t.vector(Role::qkv_bias, "ffn.down.bias", d.width);
    return;
  }
  t.matrix(Role::gate_up, "router.weight", {f.experts, d.width});
  if (f.router_bias) t.vector(Role::qkv_bias, "router.bias", f.experts);
  if (f.router_correction) t.vector(Role::qkv_bias, "router.correction", f.experts);
  t.matrix(Role::gate_up, "experts.gate_up.weight", {f.experts, f.in_width(f.width), d.width});
  if (f.bias) t.vector(Role::qkv_bias, "experts.gate_up.bias", f.experts * f.in_width(f.width));
  t.matrix(Role::down, "experts.down.weight", {f.experts, d.width, f.width}, true);
  if (f.bias) t.vector(Role::qkv_bias, "experts.down.bias", f.experts * d.width);
  if (f.shared_width > 0) {
    t.matrix(Role::gate_up, "shared.gate_up.weight", {f.in_width(f.shared_width), d.width});
    t.matrix(Role::down, "shared.down.weight", {d.width, f.shared_width}, true);
  }
  if (f.shared_gate) t.matrix(Role::gate_up, "shared.gate.weight", {1, d.width});
}

}  // namespace

bool Decoder::has_experts() const {
  return std::any_of(layers.begin(), layers.end(), [](const DecoderLayer& l) { return l.ffn.experts > 0; });
}

std::vector<ParamSpec> param_table(const Decoder& d) {
  Table t{{}, 0.02 / std::sqrt(2.0 * double(d.layers.size()))};
  t.add(Role::embedding, "embedding.weight", {d.vocab, d.width}, 0, 0.02, true, d.tied);
  if (d.positions > 0) t.add(Role::embedding, "positions.weight", {d.positions, d.width}, 0, 0.02, true, false);
  for (t.layer = 0; t.layer < int(d.layers.size()); ++t.layer) {
    t.group = group_of_layer(t.layer);
    const DecoderLayer& l = d.layers[std::size_t(t.layer)];
    if (d.norms_before) t.norm(d.layer_norm, Role::norm1, "norm1.weight", "norm1.bias", d.width);
    add_attention(t, d, l.attention);
    if (d.norms_after) t.norm(d.layer_norm, Role::norm1, "norm1_after.weight", "norm1_after.bias", d.width);
    if (d.norms_before) t.norm(d.layer_norm, Role::norm2, "norm2.weight", "norm2.bias", d.width);
    add_ffn(t, d, l.ffn);
    if (d.norms_after) t.norm(d.layer_norm, Role::norm2, "norm2_after.weight", "norm2_after.bias", d.width);
  }
  t.layer = -1, t.group = group_of_layer(int(d.layers.size()));
  t.norm(d.layer_norm, Role::final_norm, "final_norm.weight", "final_norm.bias", d.width);
  if (!d.tied) t.matrix(Role::head, "head.weight", {d.vocab, d.width});
  return std::move(t.specs);
}

std::int64_t active_param_count(const Decoder& d) {
  std::int64_t sum = 0;
  for (const ParamSpec& s : param_table(d)) {
    const bool of_expert = std::string_view(s.name).starts_with("experts.");
    const FeedForward* f = s.layer >= 0 ? &d.layers[std::size_t(s.layer)].ffn : nullptr;
    sum += of_expert ? s.shape.count() / f->experts * f->experts_of_token : s.shape.count();
  }
  return sum;
}

std::int64_t cache_bytes(const Decoder& d, std::int64_t batch, std::int64_t len, DType type) {
  std::int64_t elements = 0;
  for (const DecoderLayer& l : d.layers) {
    const SelfAttention& a = l.attention;
    elements += batch * (a.window > 0 ? std::min(len, a.window) : len) * a.cached();
  }
  return elements * std::int64_t(size_of(type));
}

void check(const Decoder& d) {
  const auto between = [&](const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
    check(value >= low && value <= high, Code::bad_argument, "model: {} is {}, it must be {} to {}", what, value, low, high);
  };
  between("the vocabulary", d.vocab, 1, 1 << 24);
  between("the width", d.width, 1, 1 << 20);
  between("the number of layers", std::int64_t(d.layers.size()), 1, 1 << 12);
  between("the number of learned positions", d.positions, 0, 1 << 28);
  for (const DecoderLayer& l : d.layers) {
    const SelfAttention& a = l.attention;
    between("the number of heads", a.heads, 1, 1 << 14);
    between("the number of key heads", a.kv_heads, 1, 1 << 14);
    check(a.heads % a.kv_heads == 0, Code::bad_argument, "model: {} key heads must divide {} heads", a.kv_heads, a.heads);
    between("a head's dimension", a.head_dim, 1, 4096);
    between("a value's dimension", a.value_dim, 1, 4096);
    between("the window", a.window, 0, 1ll << 40);
    between("the rank of q", a.q_rank, 0, 1 << 20);
    between("the rank of k and v", a.kv_rank, 0, 1 << 20);
    between("the rotary part of a head", a.rope_dim, 0, a.head_dim);
    const FeedForward& f = l.ffn;
    between("the width of a feed-forward layer", f.width, 1, 1 << 22);
    between("the number of experts", f.experts, 0, 1 << 14);
    between("the experts of a token", f.experts_of_token, f.experts > 0 ? 1 : 0, std::max<std::int64_t>(f.experts, 0));
    between("the width of the shared expert", f.shared_width, 0, 1 << 22);
  }
}

}  // namespace headroom::engine
