// What each block keeps, found by dry runs: the levels for which a step fits the memory given and takes least time.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/forecast/forecast.h"

namespace headroom::engine {

// One level for the first blocks and one that keeps more for the others: blocks are alike, so two levels are enough, and what is made
// again is made when most of what the later blocks kept has been given back. Or one level for all, and some blocks' tensors on the host:
// on a GPU whose link to the host is known, while they fit there. Nothing where not even the least fits.
// workers: threads that take scratch on a CPU.
std::optional<Keeping> keep_that_fits(Recipe, std::size_t bytes, const Device&, int workers);

// Where a recipe leaves open what blocks keep (auto), finds it; an Error (out_of_memory) says what the least needs.
void find_keep(Recipe&, std::size_t bytes, const Device&, int workers);

std::string kept_in_words(const Recipe&);  // "groups:6", or "input × 4, everything × 8"

}  // namespace headroom::engine
