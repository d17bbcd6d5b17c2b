// Input for timing, profiling and tests without a text: tokens and targets drawn from the whole vocabulary.
#pragma once
#include "engine/pass/training.h"

namespace headroom::engine {

// documents: their lengths, in every row; none: a row is one.
void feed_random(Training&, std::uint64_t seed, int micro = 0, const std::vector<std::int64_t>& documents = {});

}  // namespace headroom::engine
