#include "instruments/bench/gpu_timer.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace headroom::bench {

namespace {

constexpr double least_ms = 0.5;  // much longer than a launch by the host, which takes some microseconds
constexpr double gap_is_lost_in_ms = 5;
constexpr double first_is_enough_ms = 100;
constexpr int most_calls = 64;

struct Recorded {
  Stopwatch watch;
  std::unique_ptr<Graph> graph;
  int calls = 1;
  bool lead = false;  // run one graph before the timed one

  double time(const Stream& s, const std::function<void()>& work) {
    watch.start(s);
    work();
    watch.stop(s);
    return double(watch.elapsed_ms());
  }

  void record(const Stream& s, const std::function<void()>& call) {
    double once = time(s, call);  // includes what a first call loads and chooses
    if (once < first_is_enough_ms) once = time(s, call);
    calls = int(std::clamp(std::ceil(least_ms / std::max(once, 1e-4)), 1.0, double(most_calls)));
    lead = once < gap_is_lost_in_ms;
    graph = std::make_unique<Graph>(s, [&] {
      for (int i = 0; i < calls; ++i) call();
    });
  }
};

}  // namespace

Timer gpu_timer(const Stream& s) {
  return [&s, r = std::make_shared<Recorded>()](const std::function<void()>& call) {
    if (!r->graph) r->record(s, call);
    if (r->lead) r->graph->launch(s);
    return r->time(s, [&] { r->graph->launch(s); }) / r->calls;
  };
}

Timer timer_at(const Place& p) { return p.on_gpu() ? gpu_timer(p.queue()) : host_timer(); }

}  // namespace headroom::bench
