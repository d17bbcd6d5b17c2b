// Samples the clock of a GPU's multiprocessors every few milliseconds until mean_hz() is called.
#pragma once
#include <atomic>
#include <thread>

#include "base/device.h"

namespace headroom::profile {

class ClockSamples {
 public:
  explicit ClockSamples(const Device&);
  double mean_hz();  // 0: the driver did not say

 private:
  std::atomic<double> sum_hz_{0};
  std::atomic<int> count_{0};
  std::jthread thread_;
};

}  // namespace headroom::profile
