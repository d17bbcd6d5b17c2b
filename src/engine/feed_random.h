// Input for timing, profiling and tests without a text: tokens and targets drawn from the whole vocabulary.
#pragma once
#include "engine/training.h"

namespace headroom::engine {

void feed_random(Training&, std::uint64_t seed, int micro = 0);

}  // namespace headroom::engine
