// Timers for a CUDA stream and for a Place.
#pragma once
#include "gpu/place.h"
#include "instruments/bench/bench.h"

namespace headroom::bench {

// Times one callable that queues capturable work on the stream. Use a new timer for another callable. The first use calls it once or twice and
// records a graph of so many calls that it lasts half a millisecond (64 at most). A sample is the time between events around the graph,
// divided by the calls. If the graph is short, a copy of it runs before it, so that gaps between host launches are not counted. Caches hold
// what the previous call left: a small problem finds its inputs in L2.
Timer gpu_timer(const Stream&);

Timer timer_at(const Place&);  // gpu_timer on a GPU, the host's clock on the CPU

}  // namespace headroom::bench
