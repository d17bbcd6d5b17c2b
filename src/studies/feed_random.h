// What a step is timed and profiled on where there is no text: tokens and targets drawn from the whole vocabulary.
#pragma once
#include "engine/training.h"

namespace headroom::studies {

void feed_random(engine::Training&, std::uint64_t seed);  // the first micro-batch

}  // namespace headroom::studies
