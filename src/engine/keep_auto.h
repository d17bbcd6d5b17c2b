// What each block keeps, found by dry runs: the levels for which a step fits the memory given and takes least time.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/forecast.h"

namespace headroom::engine {

enum class KeepAsked : std::uint8_t { everything, no_product, no_cheap, no_attention_inputs, input, automatic };

constexpr std::optional<Keep> level_of(KeepAsked k) {  // nothing: to be found
  return k == KeepAsked::automatic ? std::nullopt : std::optional(Keep(k));
}

// One level for the first blocks and one that keeps more for the others: blocks are alike, so two levels are enough, and what is made
// again is made when most of what the later blocks kept has been given back. Nothing where not even the least fits.
// workers: threads that take scratch on a CPU.
std::optional<std::vector<Keep>> keep_that_fits(Recipe, std::size_t bytes, const Device&, int workers);

// The level asked for, or those found; an Error (out_of_memory) that says what the least needs.
std::vector<Keep> keep_levels(KeepAsked, const Recipe&, std::size_t bytes, const Device&, int workers);

std::string in_words(std::span<const Keep>);  // "input × 4, everything × 8"

}  // namespace headroom::engine

template <>
inline constexpr auto headroom::names_of<headroom::engine::KeepAsked> =
    headroom::names<headroom::engine::KeepAsked>("everything", "no-product", "no-cheap", "no-attention-inputs", "input", "auto");
