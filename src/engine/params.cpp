#include "engine/params.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "engine/decoder.h"

namespace headroom::engine {

std::string ParamSpec::full_name() const { return layer < 0 ? std::string(name) : fmt::format("blocks.{}.{}", layer, name); }

namespace {

const char* name_of_segment(const ParamSpec& s) {
  if (s.role == Role::embedding) return "embedding";
  if (s.layer < 0) return s.multiplied ? "head" : "final_norm";
  return s.multiplied ? "matrices" : "vectors";
}

// Gives every parameter its segment, and its place there.
void place(std::vector<ParamSpec>& table) {
  struct Run {  // of the group in hand: its segment's number once it has one, and its elements so far
    int number = -1;
    std::int64_t elements = 0;
  };
  std::array<Run, 2> runs;
  int segments = 0, group = -1;
  for (ParamSpec& s : table) {
    if (s.group != group) group = s.group, runs = {};
    Run& run = runs[s.multiplied ? 1 : 0];
    if (run.number < 0) run.number = segments++;
    s.segment = run.number, s.at = run.elements;
    run.elements += round_up(s.shape.count(), grain);
  }
}

}  // namespace

std::vector<ParamSpec> param_table(const ModelConfig& c) {
  if (c.counted) {
    auto table = param_table(*c.counted);
    place(table);
    return table;
  }
  constexpr double std = 0.02;                                         // GPT-2's
  const double into_stream = std / std::sqrt(2.0 * double(c.layers));  // 2·layers matrices add to the residual stream
  std::vector<ParamSpec> table;
  table.reserve(std::size_t(9 * c.layers + 3));
  int layer = -1, group = 0;
  const auto begin = [&](int its_layer, int its_group) { layer = its_layer, group = its_group; };
  const auto add = [&](ParamSpec s) {
    s.layer = layer, s.group = group;
    table.push_back(s);
  };
  const auto matrix = [&](Role role, const char* name, std::int64_t out, std::int64_t in, double deviation) {
    add({.role = role,
         .name = name,
         .layer = 0,
         .group = 0,
         .shape = {out, in},
         .mean = 0,
         .std = deviation,
         .decay = true,
         .multiplied = true,
         .looked_up = false});
  };
  const auto vector = [&](Role role, const char* name, std::int64_t width, double mean) {
    add({.role = role,
         .name = name,
         .layer = 0,
         .group = 0,
         .shape = {width},
         .mean = mean,
         .std = 0,
         .decay = false,
         .multiplied = false,
         .looked_up = false});
  };
  begin(-1, 0);
  add({.role = Role::embedding,
       .name = "embedding.weight",
       .layer = 0,
       .group = 0,
       .shape = {c.vocab, c.width},
       .mean = 0,
       .std = std,
       .decay = true,
       .multiplied = c.tied,
       .looked_up = true});
  for (int l = 0; l < int(c.layers); ++l) {
    begin(l, group_of_layer(l));
    vector(Role::norm1, "norm1.weight", c.width, 1);
    matrix(Role::qkv, "attention.qkv.weight", c.qkv_width(), c.width, std);
    if (c.qkv_bias) vector(Role::qkv_bias, "attention.qkv.bias", c.qkv_width(), 0);
    if (c.qk_norm) {
      vector(Role::q_norm, "attention.q_norm.weight", c.head_dim, 1);
      vector(Role::k_norm, "attention.k_norm.weight", c.head_dim, 1);
    }
    matrix(Role::out, "attention.out.weight", c.width, c.q_width(), into_stream);
    vector(Role::norm2, "norm2.weight", c.width, 1);
    matrix(Role::gate_up, "ffn.gate_up.weight", 2 * c.ffn, c.width, std);
    matrix(Role::down, "ffn.down.weight", c.width, c.ffn, into_stream);
  }
  begin(-1, last_group(c));
  vector(Role::final_norm, "final_norm.weight", c.width, 1);
  if (!c.tied) matrix(Role::head, "head.weight", c.vocab, c.width, std);
  place(table);
  return table;
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

std::int64_t param_count(const ModelConfig& c) {
  std::int64_t sum = 0;
  for (const ParamSpec& s : param_table(c)) sum += s.shape.count();
  return sum;
}

}  // namespace headroom::engine
