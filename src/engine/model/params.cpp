#include "engine/model/params.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

#include "engine/model/decoder.h"

namespace headroom::engine {

int last_group(const Decoder& d) { return group_of_layer(int(d.layers.size())); }

std::string ParamSpec::full_name() const { return layer < 0 ? std::string(name) : fmt::format("blocks.{}.{}", layer, name); }

bool ParamSpec::is_of(std::string_view product) const {
  constexpr std::string_view ending = ".weight";
  const std::string_view all = name;
  return all.ends_with(ending) && all.substr(0, all.size() - ending.size()) == product;
}

namespace {

struct Table {
  std::vector<ParamSpec> specs;
  double into_stream;
  int layer = -1, group = 0, experts = 0;

  void matrix(WeightRole role, const char* name, Shape shape, bool writes_stream = false) {
    add(role, name, shape, 0, writes_stream ? into_stream : 0.02, true, true);
  }
  void vector(WeightRole role, const char* name, std::int64_t n, double mean = 0) { add(role, name, {n}, mean, 0, false, false); }
  void add(WeightRole role, const char* name, Shape shape, double mean, double std, bool decay, bool multiplied) {
    ParamSpec s{};
    s.role = role;
    s.name = name;
    s.layer = layer;
    s.group = group;
    s.looked_up = role == WeightRole::embedding || role == WeightRole::positions;
    s.shape = shape;
    s.mean = mean;
    s.std = std;
    s.decay = decay;
    s.multiplied = multiplied;
    s.experts = experts;
    specs.push_back(s);
  }
  void norm(WeightRole role, const char* weight, std::int64_t n) { vector(role, weight, n, 1); }
};

void add_attention(Table& t, const Decoder& d, const SelfAttention& a) {
  if (a.latent()) {
    const std::int64_t nope = a.head_dim - a.rope_dim;
    if (a.q_rank > 0) {
      t.matrix(WeightRole::q_down, "attention.q_down.weight", {a.q_rank, d.width});
      t.vector(WeightRole::q_latent_norm, "attention.q_latent_norm.weight", a.q_rank, 1);
      t.matrix(WeightRole::q_up, "attention.q_up.weight", {a.q_width(), a.q_rank});
    } else {
      t.matrix(WeightRole::q_up, "attention.q.weight", {a.q_width(), d.width});
    }
    t.matrix(WeightRole::kv_down, "attention.kv_down.weight", {a.kv_rank + a.rope_dim, d.width});
    t.vector(WeightRole::kv_latent_norm, "attention.kv_latent_norm.weight", a.kv_rank, 1);
    t.matrix(WeightRole::kv_up, "attention.kv_up.weight", {a.heads * (nope + a.value_dim), a.kv_rank});
  } else {
    const std::int64_t width = a.q_width() + a.k_width() + a.v_width();
    t.matrix(WeightRole::qkv, "attention.qkv.weight", {width, d.width});
    if (a.qkv_bias) t.vector(WeightRole::qkv_bias, "attention.qkv.bias", width);
    if (a.norm != HeadNorm::none) {
      const bool each = a.norm == HeadNorm::each;
      t.vector(WeightRole::q_norm, "attention.q_norm.weight", each ? a.head_dim : a.q_width(), 1);
      t.vector(WeightRole::k_norm, "attention.k_norm.weight", each ? a.head_dim : a.k_width(), 1);
    }
  }
  if (a.sinks) t.vector(WeightRole::other, "attention.sinks", a.heads);
  t.matrix(WeightRole::out, "attention.out.weight", {d.width, a.out_width()}, true);
  if (a.out_bias) t.vector(WeightRole::out_bias, "attention.out.bias", d.width);
}

void add_ffn(Table& t, const Decoder& d, const FeedForward& f) {
  if (f.experts == 0) {
    t.matrix(WeightRole::gate_up, f.gated ? "ffn.gate_up.weight" : "ffn.up.weight", {f.in_width(f.width), d.width});
    if (f.bias) t.vector(WeightRole::gate_up_bias, f.gated ? "ffn.gate_up.bias" : "ffn.up.bias", f.in_width(f.width));
    t.matrix(WeightRole::down, "ffn.down.weight", {d.width, f.width}, true);
    if (f.bias) t.vector(WeightRole::down_bias, "ffn.down.bias", d.width);
    return;
  }
  t.matrix(WeightRole::router, "router.weight", {f.experts, d.width});
  if (f.router_bias) t.vector(WeightRole::other, "router.bias", f.experts);
  t.experts = f.experts;
  t.matrix(WeightRole::experts_gate_up, "experts.gate_up.weight", {f.experts, f.in_width(f.width), d.width});
  if (f.bias) t.vector(WeightRole::other, "experts.gate_up.bias", f.experts * f.in_width(f.width));
  t.matrix(WeightRole::experts_down, "experts.down.weight", {f.experts, d.width, f.width}, true);
  if (f.bias) t.vector(WeightRole::other, "experts.down.bias", f.experts * d.width);
  t.experts = 0;
  if (f.shared_width > 0) {
    t.matrix(WeightRole::shared_gate_up, "shared.gate_up.weight", {f.in_width(f.shared_width), d.width});
    t.matrix(WeightRole::shared_down, "shared.down.weight", {d.width, f.shared_width}, true);
  }
  if (f.shared_gate) t.matrix(WeightRole::other, "shared.gate.weight", {1, d.width});
}

const char* name_of_segment(const ParamSpec& s) {
  if (s.role == WeightRole::embedding) return "embedding";
  if (s.role == WeightRole::positions) return "positions";
  if (s.layer < 0) return s.multiplied ? "head" : "final_norm";
  return s.multiplied ? "matrices" : "vectors";
}

// Gives every parameter its segment, and its place there.
void place(std::vector<ParamSpec>& table) {
  struct OpenSegment {  // this group's: its number once it has one, and its elements so far
    int number = -1;
    std::int64_t elements = 0;
  };
  std::array<OpenSegment, 2> runs;
  int segments = 0, group = -1;
  for (ParamSpec& s : table) {
    if (s.group != group) group = s.group, runs = {};
    OpenSegment& run = runs[s.multiplied ? 1 : 0];
    if (run.number < 0) run.number = segments++;
    s.segment = run.number;
    s.at = run.elements;
    run.elements += round_up(s.shape.count(), grain);
  }
}

}  // namespace

std::vector<ParamSpec> param_table(const Decoder& d) {
  Table t{{}, 0.02 / std::sqrt(2.0 * double(d.layers.size()))};
  const auto norm = [&](WeightRole weight, const char* name, WeightRole bias, const char* bias_name) {
    t.norm(weight, name, d.width);
    if (d.layer_norm && d.norm_bias) t.vector(bias, bias_name, d.width);
  };
  t.add(WeightRole::embedding, "embedding.weight", {d.vocab, d.width}, 0, 0.02, true, d.tied);
  if (d.positions > 0) t.add(WeightRole::positions, "positions.weight", {d.positions, d.width}, 0, 0.02, true, false);
  if (d.embedding_norm) norm(WeightRole::embedding_norm, "embedding_norm.weight", WeightRole::embedding_norm_bias, "embedding_norm.bias");
  for (t.layer = 0; t.layer < int(d.layers.size()); ++t.layer) {
    t.group = group_of_layer(t.layer);
    const DecoderLayer& l = d.layers[std::size_t(t.layer)];
    if (d.norms_before) norm(WeightRole::norm1, "norm1.weight", WeightRole::norm1_bias, "norm1.bias");
    add_attention(t, d, l.attention);
    if (d.norms_after) t.norm(WeightRole::norm1_after, "norm1_after.weight", d.width);
    if (d.ffn_norm()) norm(WeightRole::norm2, "norm2.weight", WeightRole::norm2_bias, "norm2.bias");
    add_ffn(t, d, l.ffn);
    if (d.norms_after) t.norm(WeightRole::norm2_after, "norm2_after.weight", d.width);
  }
  t.layer = -1;
  t.group = group_of_layer(int(d.layers.size()));
  if (d.final_norm) norm(WeightRole::final_norm, "final_norm.weight", WeightRole::final_norm_bias, "final_norm.bias");
  if (!d.tied) t.matrix(WeightRole::head, "head.weight", {d.vocab, d.width});
  if (d.head_bias) t.vector(WeightRole::head_bias, "head.bias", d.vocab);
  place(t.specs);
  return std::move(t.specs);
}

std::vector<Segment> segments_of(const std::vector<ParamSpec>& table) {
  std::vector<Segment> all;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const ParamSpec& s = table[i];
    if (s.segment == int(all.size())) all.push_back({name_of_segment(s), s.layer, s.group, s.multiplied, {}});
    Segment& segment = all[std::size_t(s.segment)];
    segment.params.push_back(int(i));
    segment.elements = s.at + round_up(s.shape.count(), grain);
  }
  return all;
}

std::int64_t param_count(const Decoder& d) {
  std::int64_t sum = 0;
  for (const ParamSpec& s : param_table(d)) sum += s.shape.count();
  return sum;
}

std::int64_t active_param_count(const Decoder& d) {
  std::int64_t sum = 0;
  for (const ParamSpec& s : param_table(d)) {
    sum += s.experts == 0 ? s.shape.count() : s.shape.count() / s.experts * d.layers[std::size_t(s.layer)].ffn.experts_of_token;
  }
  return sum;
}

}  // namespace headroom::engine
