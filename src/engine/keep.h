// What a block remembers between forward and backward. What it does not remember it computes again, by the same forward, to the
// same bits.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom::engine {

enum class Keep : std::uint8_t {
  everything,           // every input of every op
  no_product,           // without the SwiGLU product, which backward makes again in passing
  no_cheap,             // also without the norms' outputs: elementwise to compute again
  no_attention_inputs,  // also without q, k, v (and plain attention's P): one matmul (and the scores) again
  input                 // the block's input alone: the whole block again
};

constexpr std::array<std::string_view, 5> keep_names = {"everything", "no-product", "no-cheap", "no-attention-inputs", "input"};

constexpr std::string_view name_of(Keep k) { return keep_names[std::size_t(k)]; }
constexpr std::optional<Keep> keep_named(std::string_view name) {
  for (std::size_t i = 0; i < keep_names.size(); ++i)
    if (keep_names[i] == name) return Keep(i);
  return std::nullopt;
}

}  // namespace headroom::engine
