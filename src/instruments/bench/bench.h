// Measures a callable: warm up, repeat, stop by rule. Knows neither ops nor machines; a Timer says how long a call took.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace headroom::bench {

struct Protocol {
  int warmup = 5;      // calls before the first sample
  int steps = 100;     // samples
  double until = 0;    // > 0: stop when standard error over mean is below this, after `steps` samples at most
  double seconds = 0;  // > 0: stop after so many seconds, once least_steps samples are taken
  static constexpr int least_steps = 3;
  static constexpr int least_steps_until = 10;  // a spread of fewer samples is not reliable
};

struct Stats {
  int count = 0;
  double mean = 0, std = 0, median = 0, min = 0;  // std of the samples (n − 1)
  double drift = 1;                               // median of the last quarter over that of the first: > 1 means it slowed down
  double standard_error() const;                  // the mean's
  std::optional<double> spread() const { return count > 1 ? std::optional(std) : std::nullopt; }  // std; one sample has none
};
Stats stats_of(std::span<const double> samples);

// Returns how long one call took, in milliseconds. Warm-up calls use it too, so it may prepare itself in the first (gpu_timer.h).
using Timer = std::function<double(const std::function<void()>&)>;
Timer host_timer();

struct Measurement {
  Stats ms;
  int warmup = 0;        // warm-up calls that ran
  bool complete = true;  // false: stop() ended it early
  bool reached = true;   // false: steps or seconds ended it before `until` was reached
};

// stop is called before every call; a stopped measurement keeps its samples.
Measurement measure(
    const std::function<void()>& call, const Protocol&, const Timer&, const std::function<bool()>& stop = [] { return false; });

// Axes: calls visit(index of each axis) for every combination, the last axis fastest.
void for_each_point(std::span<const std::size_t> sizes, const std::function<void(std::span<const std::size_t>)>& visit);

}  // namespace headroom::bench
