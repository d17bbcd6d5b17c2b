#include "instruments/profile/clock_samples.h"

#include <chrono>

#include "gpu/clocks.h"

namespace headroom::profile {

ClockSamples::ClockSamples(const Device& device)
    : thread_([this, device](const std::stop_token& stop) {
        for (; !stop.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(2)))
          if (const auto clocks = clocks_of(device); clocks && clocks->sm_mhz > 0) sum_hz_ = sum_hz_ + 1e6 * clocks->sm_mhz, ++count_;
      }) {}

double ClockSamples::mean_hz() const { return count_ > 0 ? sum_hz_ / double(count_) : 0; }

}  // namespace headroom::profile
