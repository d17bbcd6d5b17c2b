#include "engine/decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"

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
    s.role = role;
    s.name = name;
    s.layer = layer;
    s.group = group;
    s.looked_up = role == Role::embedding || role == Role::positions;
    s.shape = shape;
    s.mean = mean;
    s.std = std;
    s.decay = decay;
    s.multiplied = multiplied;
    specs.push_back(s);
  }
  void norm(Role role, const char* weight, std::int64_t n) { vector(role, weight, n, 1); }
};

void add_attention(Table& t, const Decoder& d, const SelfAttention& a) {
  if (a.latent()) {
    const std::int64_t nope = a.head_dim - a.rope_dim;
    if (a.q_rank > 0) {
      t.matrix(Role::other, "attention.q_down.weight", {a.q_rank, d.width});
      t.vector(Role::other, "attention.q_latent_norm.weight", a.q_rank, 1);
      t.matrix(Role::other, "attention.q_up.weight", {a.q_width(), a.q_rank});
    } else {
      t.matrix(Role::other, "attention.q.weight", {a.q_width(), d.width});
    }
    t.matrix(Role::other, "attention.kv_down.weight", {a.kv_rank + a.rope_dim, d.width});
    t.vector(Role::other, "attention.kv_latent_norm.weight", a.kv_rank, 1);
    t.matrix(Role::other, "attention.kv_up.weight", {a.heads * (nope + a.value_dim), a.kv_rank});
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
  if (a.sinks) t.vector(Role::other, "attention.sinks", a.heads);
  t.matrix(Role::out, "attention.out.weight", {d.width, a.out_width()}, true);
  if (a.out_bias) t.vector(Role::out_bias, "attention.out.bias", d.width);
}

void add_ffn(Table& t, const Decoder& d, const FeedForward& f) {
  if (f.experts == 0) {
    t.matrix(Role::gate_up, f.gated ? "ffn.gate_up.weight" : "ffn.up.weight", {f.in_width(f.width), d.width});
    if (f.bias) t.vector(Role::gate_up_bias, f.gated ? "ffn.gate_up.bias" : "ffn.up.bias", f.in_width(f.width));
    t.matrix(Role::down, "ffn.down.weight", {d.width, f.width}, true);
    if (f.bias) t.vector(Role::down_bias, "ffn.down.bias", d.width);
    return;
  }
  t.matrix(Role::other, "router.weight", {f.experts, d.width});
  if (f.router_bias) t.vector(Role::other, "router.bias", f.experts);
  t.matrix(Role::other, "experts.gate_up.weight", {f.experts, f.in_width(f.width), d.width});
  if (f.bias) t.vector(Role::other, "experts.gate_up.bias", f.experts * f.in_width(f.width));
  t.matrix(Role::other, "experts.down.weight", {f.experts, d.width, f.width}, true);
  if (f.bias) t.vector(Role::other, "experts.down.bias", f.experts * d.width);
  if (f.shared_width > 0) {
    t.matrix(Role::other, "shared.gate_up.weight", {f.in_width(f.shared_width), d.width});
    t.matrix(Role::other, "shared.down.weight", {d.width, f.shared_width}, true);
  }
  if (f.shared_gate) t.matrix(Role::other, "shared.gate.weight", {1, d.width});
}

}  // namespace

bool Decoder::has_experts() const {
  return std::any_of(layers.begin(), layers.end(), [](const DecoderLayer& l) { return l.ffn.experts > 0; });
}

attention::Problem problem_of(const SelfAttention& a, std::int64_t batch, std::int64_t len_q, std::int64_t len_k, Precision precision) {
  attention::Problem p;
  p.batch = batch;
  p.heads = a.heads;
  p.kv_heads = a.latent() ? a.heads : a.kv_heads;
  p.len_q = len_q;
  p.len_k = len_k;
  p.head_dim = a.head_dim;
  if (a.value_dim != a.head_dim) p.dim_v = a.value_dim;
  p.mask = a.window > 0 ? attention::Mask::sliding(a.window) : attention::Mask::causal();
  p.precision = precision;
  p.deterministic = true;
  if (a.scale > 0) p.scale = float(a.scale);
  p.softcap = float(a.softcap);
  return p;
}

namespace {

class Words {  // each once
 public:
  void add(bool it_does, std::string what) {
    if (it_does && std::find(all_.begin(), all_.end(), what) == all_.end()) all_.push_back(std::move(what));
  }
  std::string text() const { return joined(all_); }

 private:
  std::vector<std::string> all_;
};

void add_unlike_llama(const Decoder& d, Words& words) {
  words.add(d.layer_norm, "LayerNorm");
  words.add(d.norms_after, "norms after each half");
  words.add(d.embedding_scale != 1, "scaled embeddings");
  words.add(d.logit_softcap > 0, "capped logits");
  for (const DecoderLayer& l : d.layers) {
    words.add(!l.ffn.swiglu(), fmt::format("{} in feed-forward layers{}", names_of<activation::Function>.of(l.ffn.function),
                                           l.ffn.gated ? "" : " without a gate"));
    words.add(l.attention.norm == HeadNorm::whole, "norms over all heads");
  }
}

}  // namespace

bool computes_as_llama(const Decoder& d) {
  Words words;
  add_unlike_llama(d, words);
  return words.text().empty();
}

std::string more_than_llama(const Decoder& d) {
  Words words;
  add_unlike_llama(d, words);
  words.add(d.positions > 0, "learned positions");
  for (const DecoderLayer& l : d.layers) {
    words.add(l.attention.softcap > 0, "capped scores");
    words.add(l.attention.out_bias || l.ffn.bias, "biases of attention's output or of the feed-forward layers");
  }
  return words.text();
}

std::vector<ParamSpec> param_table(const Decoder& d) {
  Table t{{}, 0.02 / std::sqrt(2.0 * double(d.layers.size()))};
  const auto norm = [&](Role weight, const char* name, Role bias, const char* bias_name) {
    t.norm(weight, name, d.width);
    if (d.layer_norm && d.norm_bias) t.vector(bias, bias_name, d.width);
  };
  t.add(Role::embedding, "embedding.weight", {d.vocab, d.width}, 0, 0.02, true, d.tied);
  if (d.positions > 0) t.add(Role::positions, "positions.weight", {d.positions, d.width}, 0, 0.02, true, false);
  if (d.embedding_norm) norm(Role::other, "embedding_norm.weight", Role::other, "embedding_norm.bias");
  for (t.layer = 0; t.layer < int(d.layers.size()); ++t.layer) {
    t.group = group_of_layer(t.layer);
    const DecoderLayer& l = d.layers[std::size_t(t.layer)];
    if (d.norms_before) norm(Role::norm1, "norm1.weight", Role::norm1_bias, "norm1.bias");
    add_attention(t, d, l.attention);
    if (d.norms_after) t.norm(Role::norm1_after, "norm1_after.weight", d.width);
    if (d.ffn_norm()) norm(Role::norm2, "norm2.weight", Role::norm2_bias, "norm2.bias");
    add_ffn(t, d, l.ffn);
    if (d.norms_after) t.norm(Role::norm2_after, "norm2_after.weight", d.width);
  }
  t.layer = -1;
  t.group = group_of_layer(int(d.layers.size()));
  if (d.final_norm) norm(Role::final_norm, "final_norm.weight", Role::final_norm_bias, "final_norm.bias");
  if (!d.tied) t.matrix(Role::head, "head.weight", {d.vocab, d.width});
  if (d.head_bias) t.vector(Role::other, "head.bias", d.vocab);
  return std::move(t.specs);
}

std::int64_t most_tokens(const Decoder& d) { return d.positions > 0 ? d.positions : std::numeric_limits<std::int64_t>::max(); }

void check_tokens(const Decoder& d, std::int64_t len, const std::string& model) {
  check(len <= most_tokens(d), Code::bad_argument, "len is {}, and model {} has {} learned positions; ask for at most as many", len, model,
        d.positions);
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
  check(d.norm_eps >= 0 && d.norm_eps < 1, Code::bad_argument, "model: the norms' epsilon is {}, it must be 0 to 1", d.norm_eps);
  check((d.norms_before || d.norms_after) && !(d.layer_norm && d.norms_after), Code::bad_argument,
        "model: a layer has norms before its halves, after them, or both; after them no LayerNorm");
  check(d.logit_softcap >= 0, Code::bad_argument, "model: the cap of logits is {}, it must be at least 0", d.logit_softcap);
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
    between("the part of a head that positions turn", a.turned.dim, 0, a.head_dim);
    check(a.turned.theta > 1, Code::bad_argument, "model: rope_theta is {}, it must be above 1", a.turned.theta);
    check(a.scale >= 0 && a.softcap >= 0, Code::bad_argument, "model: a scale of scores of {} or a cap of {} is below 0", a.scale,
          a.softcap);
    const FeedForward& f = l.ffn;
    between("the width of a feed-forward layer", f.width, 1, 1 << 22);
    between("the number of experts", f.experts, 0, 1 << 14);
    between("the experts of a token", f.experts_of_token, f.experts > 0 ? 1 : 0, std::max<std::int64_t>(f.experts, 0));
    between("the width of the shared expert", f.shared_width, 0, 1 << 22);
  }
}

}  // namespace headroom::engine
