// What the hardware itself counts while a call runs: how busy the tensor pipes are, and at which clock. Needs the right to read
// performance counters; where that is missing, `why` says what to ask for.
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <thread>

namespace headroom::profile {

struct Counted {
  double tensor_share = 0;  // cycles in which the tensor pipe is active, of all that passed, averaged over the multiprocessors
  double sm_hz = 0;         // mean clock of the multiprocessors
  double ms = 0;            // of the call on the device
  std::string why;          // not empty: nothing was counted
};

// `call` puts work on the device; `wait` waits for it. Called as often as the counters need passes. No recording may be open.
Counted count_tensor_work(int device, const std::function<void()>& call, const std::function<void()>& wait);

// The clock of the multiprocessors now, through the driver's management library; 0 when it does not say.
double sm_clock_hz(int device);

class ClockSamples {  // of that clock, every few milliseconds, as long as this lives
 public:
  explicit ClockSamples(int device);
  double mean_hz() const;  // 0: the driver did not say

 private:
  std::atomic<double> sum_hz_{0};
  std::atomic<int> count_{0};
  std::jthread thread_;
};

}  // namespace headroom::profile
