#include "dry/library/pace.h"

#include <atomic>

namespace headroom::dry {

namespace {

// What a kernel's first launch takes more, by what three programs with DDP did on an H200: between their first backward pass and their second step,
// with the first launches of an optimizer's 8 to 10 kernels, a watchdog had looked each time, so that took 100 ms. Seconds of 21 programs of the
// fourth set (bench/forecast) grew by 8 ms for each kernel that they have more.
constexpr double first_use_s = 0.015;

struct Pace {
  const Rates rates = rates_of_h200();
  std::atomic<std::uint64_t> now_ns = 0;
  std::atomic<bool> counts = false;  // Python's calls too, as in the clock (clock.h); a program without any has a time for each call

  void add(double s, double bare_s) { now_ns += std::uint64_t((counts ? s : bare_s) * 1e9); }
};
Pace& pace() {
  static Pace& one = *new Pace;
  return one;
}

}  // namespace

std::uint64_t paced_ns() { return pace().now_ns; }

void pace_counted(const HostWork& w) {
  Pace& p = pace();
  if (w.functions > 0) p.counts = true;
  p.add(seconds_of(w, p.rates.host), 0);
}

void pace_block() { pace().add(pace().rates.host.block_s, 0); }

void pace_called(double HostRate::*call) {
  const Rates& r = pace().rates;
  pace().add(r.host.*call, call == &HostRate::wait_s ? r.bare_wait_s : r.bare_launch_s);
}

void pace_kernel(std::string_view name) { pace().add(call_of_kernel(name, pace().rates.host), pace().rates.bare_launch_s); }

void pace_product(std::string_view name) { pace().add(call_of_product(name, pace().rates.host), pace().rates.bare_launch_s); }

void pace_asked() { pace().add(pace().rates.host.block_s, pace().rates.host.block_s); }

void pace_first_use() { pace().add(first_use_s, first_use_s); }

void pace_waited(std::uint64_t until_ns) {
  std::uint64_t now = pace().now_ns;
  while (now < until_ns && !pace().now_ns.compare_exchange_weak(now, until_ns)) {}
}

}  // namespace headroom::dry
