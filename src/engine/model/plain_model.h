// PlainModel — the sizes of a decoder whose layers are alike, with RMSNorm, rotary positions, SwiGLU and grouped key heads. Presets, our own
// model files and options such as --width give these sizes; decoder_of makes the decoder that the engine reads.
#pragma once
#include <optional>
#include <string>

#include "base/described.h"
#include "engine/model/decoder.h"

namespace headroom::engine {

struct PlainModel {
  std::string name{};
  std::int64_t vocab = 0, width = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  bool tied = false;  // the head's weight is the embedding's
  double rope_theta = 10000, norm_eps = 1e-5;
  bool qkv_bias = false;  // q, k, v = W·x + b, as in Qwen2
  bool qk_norm = false;   // RMSNorm over each head of q and k before they turn, as in Qwen3
};
void describe(Of<PlainModel> auto& m, auto&& f) {  // the keys of a model file
  f(m.name, {.name = "name"});
  f(m.vocab, {.name = "vocab", .allowed = {1, 1 << 24}});
  f(m.width, {.name = "width", .allowed = {1, 1 << 20}});
  f(m.layers, {.name = "layers", .allowed = {1, 1 << 12}});
  f(m.heads, {.name = "heads", .allowed = {1, 1 << 14}});
  f(m.kv_heads, {.name = "kv_heads", .allowed = {1, 1 << 14}});
  f(m.head_dim, {.name = "head_dim", .allowed = {1, 256}});
  f(m.ffn, {.name = "ffn", .allowed = {1, 1 << 22}});
  f(m.tied, {.name = "tied"});
  f(m.rope_theta, {.name = "rope_theta"});
  f(m.norm_eps, {.name = "norm_eps"});
  f(m.qkv_bias, {.name = "qkv_bias"});
  f(m.qk_norm, {.name = "qk_norm"});
}

void check(const PlainModel&);  // an Error (bad_argument) that says what is allowed, in a model file's words

Decoder decoder_of(const PlainModel&);
PlainModel sizes_of(const Decoder&);                 // its layers' as the first one's
std::optional<PlainModel> plain_of(const Decoder&);  // nothing where these sizes cannot say what it computes

// Changes sizes of a plain model: change(sizes). The file that described it no longer does.
Decoder with_sizes(const Decoder& before, const PlainModel&);
template <class Change>
void change_sizes(Decoder& d, Change&& change) {
  std::optional<PlainModel> sizes = plain_of(d);
  check(sizes.has_value(), Code::bad_argument, "model {}: it has more than sizes, and is taken as it is", d.name);
  change(*sizes);
  d = with_sizes(d, *sizes);
}

}  // namespace headroom::engine
