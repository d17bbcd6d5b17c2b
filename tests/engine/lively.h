// What tests of the engine share, on a card and not: weights that are the same wherever the workshop stands, and the error of gradients.
#pragma once
#include <cmath>
#include <vector>

#include "tests/engine/workshop.h"

namespace headroom::engine {

// Sides that 256 divides: what a product that updates its weight requires on a GPU.
inline Decoder whole_tiles() {
  return decoder_of({.name = "whole tiles", .vocab = 97, .width = 256, .layers = 2, .heads = 4, .kv_heads = 4, .head_dim = 64, .ffn = 512});
}

// Weights large enough that every path matters: attention that attends, gates that bend.
inline void fill_lively(Workshop& w, float size = 0.4f) {
  const Random random{99};
  std::uint64_t i = 0;
  for (const Param& p : w.training.store().params()) {
    std::vector<float> values(std::size_t(p.master.count()));
    for (float& x : values) x = float(p.spec.mean) + size * random.normal(i++);
    write(values.data(), p.master, w.ctx);
  }
  w.training.store().refresh_copies();
}

template <class T>
double size_of_error(const std::vector<T>& expected, const std::vector<T>& got) {  // over the size of what was expected
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double(got[i]) - double(expected[i]), 2);
    size += std::pow(double(expected[i]), 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace headroom::engine
