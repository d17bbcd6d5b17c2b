#include "instruments/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace headroom::bench {

namespace {

using Clock = std::chrono::steady_clock;

double median_of(std::vector<double> s) {
  const auto middle = s.begin() + std::ptrdiff_t(s.size() / 2);
  std::nth_element(s.begin(), middle, s.end());
  if (s.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(s.begin(), middle)) / 2;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

double Stats::standard_error() const { return count > 0 ? std / std::sqrt(double(count)) : 0; }

Stats stats_of(std::span<const double> s) {
  Stats r;
  r.count = int(s.size());
  if (s.empty()) return r;
  r.mean = std::accumulate(s.begin(), s.end(), 0.0) / double(s.size());
  double squares = 0;
  for (double x : s) squares += (x - r.mean) * (x - r.mean);
  r.std = s.size() > 1 ? std::sqrt(squares / double(s.size() - 1)) : 0;
  r.median = median_of({s.begin(), s.end()});
  r.min = *std::min_element(s.begin(), s.end());
  if (const auto quarter = s.size() / 4; quarter > 0) {
    const auto first = s.first(quarter), last = s.last(quarter);
    r.drift = median_of({last.begin(), last.end()}) / median_of({first.begin(), first.end()});
  }
  return r;
}

Timer host_timer() {
  return [](const std::function<void()>& call) {
    const auto start = Clock::now();
    call();
    return seconds_since(start) * 1e3;
  };
}

Measurement measure(const std::function<void()>& call, const Protocol& p, const Timer& timer, const std::function<bool()>& stop) {
  Measurement m;
  for (const auto start = Clock::now(); m.warmup < p.warmup && !stop(); ++m.warmup) {
    if (p.seconds > 0 && m.warmup > 0 && seconds_since(start) > p.seconds / 2) break;
    timer(call);  // through the timer, so that its preparation and its queued work are done before the first sample
  }
  std::vector<double> samples;
  double mean = 0, squares = 0;  // the samples so far, updated per sample (Welford), so that a million samples take linear time
  const auto known = [&] {
    const double n = double(samples.size());
    return n >= Protocol::least_steps_until && std::sqrt(squares / (n - 1) / n) <= p.until * mean;
  };
  const auto content = [&, start = Clock::now()] {
    const int n = int(samples.size());
    if (n >= p.steps) return true;
    if (p.seconds > 0 && n >= Protocol::least_steps && seconds_since(start) > p.seconds) return true;
    return p.until > 0 && known();
  };
  while (!content()) {
    if (stop()) {
      m.complete = false;
      break;
    }
    const double ms = timer(call), off = ms - mean;
    samples.push_back(ms);
    mean += off / double(samples.size());
    squares += off * (ms - mean);
  }
  m.reached = p.until <= 0 || known();
  m.ms = stats_of(samples);
  return m;
}

void for_each_point(std::span<const std::size_t> sizes, const std::function<void(std::span<const std::size_t>)>& visit) {
  if (std::find(sizes.begin(), sizes.end(), 0u) != sizes.end()) return;
  std::vector<std::size_t> at(sizes.size(), 0);
  for (;;) {
    visit(at);
    std::size_t axis = sizes.size();
    while (axis > 0 && ++at[axis - 1] == sizes[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace headroom::bench
