// The clock of a CUDA stream, and of wherever work runs.
#pragma once
#include "gpu/place.h"
#include "instruments/bench/bench.h"

namespace headroom::bench {

// Times one callable, which puts work on the stream and must be capturable: a new timer for the next. Its first use calls it once or twice and
// records a graph of as many calls as last half a millisecond (64 at most). A sample is the time between two events around that graph,
// over its calls; where it is short the same graph runs before it, so that no gap between launches by the host is counted. Caches are as
// the previous call left them: a small problem finds its inputs in L2.
Timer gpu_timer(const Stream&);

Timer timer_at(const Place&);  // that, or on the CPU the host's clock

}  // namespace headroom::bench
