#include "instruments/profile/clock_samples.h"

#include <chrono>

#include "gpu/clocks.h"

namespace headroom::profile {

ClockSamples::ClockSamples(const Device& device)
    : thread_([this, device](const std::stop_token& stop) {
        do {  // at least once, however short the run is
          if (const auto clocks = clocks_of(device); clocks && clocks->sm_mhz > 0) {
            sum_hz_ = sum_hz_ + 1e6 * clocks->sm_mhz;
            ++count_;
          }
          if (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        } while (!stop.stop_requested());
      }) {}

double ClockSamples::mean_hz() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  return count_ > 0 ? sum_hz_ / double(count_) : 0;
}

}  // namespace headroom::profile
