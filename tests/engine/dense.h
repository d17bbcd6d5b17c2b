// Small dense models, each with what one family has beside a Llama: together everything that the engine trains.
#pragma once
#include "engine/model/decoder.h"
#include "tests/engine/workshop.h"

namespace headroom::engine {

struct DenseModel {
  const char* name;
  Decoder model;
};

// The sizes of `base`, so that what is shared can be compared.
inline std::vector<DenseModel> dense_models(const Decoder& base = tiny()) {
  using activation::Function;
  std::vector<DenseModel> all;
  const auto add = [&](const char* name, const auto& change) {
    Decoder d = base;
    change(d);
    d.name = name;
    all.push_back({name, std::move(d)});
  };
  const auto each = [](Decoder& d, const auto& change) {
    for (std::size_t i = 0; i < d.layers.size(); ++i) change(d.layers[i].attention, d.layers[i].ffn, i);
  };
  add("gpt2", [&](Decoder& d) {
    d.layer_norm = d.tied = true, d.positions = 80;
    each(d, [](SelfAttention& a, FeedForward& f, std::size_t i) {
      a.qkv_bias = a.out_bias = true;
      f = {.width = f.width, .gated = false, .bias = true, .function = Function::gelu_tanh};
      if (i == 1) a.scale = 0.3;
    });
  });
  add("gemma2", [&](Decoder& d) {
    d.norms_after = d.tied = true, d.embedding_scale = 4, d.logit_softcap = 3;
    each(d, [](SelfAttention& a, FeedForward& f, std::size_t i) {
      a.softcap = 2, a.scale = 0.7, a.window = i == 0 ? 3 : 0, f.function = Function::gelu_tanh;
    });
  });
  add("gemma3", [&](Decoder& d) {
    d.norms_after = true, d.embedding_scale = 4;
    each(d, [](SelfAttention& a, FeedForward& f, std::size_t i) {
      a.norm = HeadNorm::each, f.function = Function::gelu;
      a.turned = i == 0 ? rope::Positions{.theta = 100} : rope::Positions{.theta = 500, .scaling = rope::Scaling::linear, .factor = 4};
      a.window = i == 0 ? 4 : 0;
    });
  });
  add("olmo2", [&](Decoder& d) {
    d.norms_before = false, d.norms_after = true;
    each(d, [](SelfAttention& a, FeedForward&, std::size_t) { a.norm = HeadNorm::whole; });
  });
  add("phi3", [&](Decoder& d) {
    each(d, [](SelfAttention& a, FeedForward&, std::size_t) {
      a.window = 3, a.turned.dim = 2, a.turned.scaling = rope::Scaling::longrope, a.turned.factor = 8, a.turned.original = 4;
      a.turned.short_factors = {1.5}, a.turned.long_factors = {2.5};
    });
  });
  add("llama", [&](Decoder& d) {
    each(d, [](SelfAttention& a, FeedForward& f, std::size_t) {
      a.qkv_bias = a.out_bias = f.bias = true, f.function = Function::relu;
      a.turned.scaling = rope::Scaling::llama3, a.turned.factor = 8, a.turned.original = 16;
    });
  });
  return all;
}

}  // namespace headroom::engine
