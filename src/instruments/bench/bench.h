// Measuring a callable: warm up, repeat, stop when told enough. Knows neither ops nor machines; a timer says how long a call took.
#pragma once
#include <functional>
#include <span>
#include <vector>

namespace headroom::bench {

struct Protocol {
  int warmup = 5;      // calls before the first that counts
  int steps = 100;     // calls that count
  double until = 0;    // > 0: stop as soon as the standard error of the mean, over the mean, is below this; steps is then the most
  double seconds = 0;  // > 0: a measurement that is past this many seconds stops as soon as least_steps are in
  static constexpr int least_steps = 3;
  static constexpr int least_steps_until = 10;  // a spread needs a few samples to be believed
};

struct Stats {
  int count = 0;
  double mean = 0, std = 0, median = 0, min = 0;  // std of the samples (n − 1)
  double drift = 1;                               // median of the last quarter over that of the first: > 1 has slowed down
  double standard_error() const;                  // of the mean
};
Stats stats_of(std::span<const double> samples);

// How long one call took, in milliseconds. Calls that warm up go through it too, so it may prepare itself at the first (gpu_timer.h).
using Timer = std::function<double(const std::function<void()>&)>;
Timer host_timer();

struct Measurement {
  Stats ms;
  int warmup = 0;        // calls that really warmed up
  bool complete = true;  // false: stop() said so before the protocol was content
  bool reached = true;   // false: steps or seconds ended it before the mean was known as well as until asks
};

// stop: asked before every call; a measurement that is stopped keeps what it has.
Measurement measure(
    const std::function<void()>& call, const Protocol&, const Timer&, const std::function<bool()>& stop = [] { return false; });

// Axes: calls visit(index of each axis) for every combination, the last axis fastest.
void for_each_point(std::span<const std::size_t> sizes, const std::function<void(std::span<const std::size_t>)>& visit);

}  // namespace headroom::bench
