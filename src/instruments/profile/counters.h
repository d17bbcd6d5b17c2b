// What the hardware itself counts while a call runs: how busy the tensor pipes are, and at which clock. Needs the right to read
// performance counters; where that is missing, `why` says what to ask for.
#pragma once
#include <functional>
#include <string>

namespace headroom::profile {

struct Counted {
  double tensor_share = 0;  // cycles in which the tensor pipe is active, of all that passed, averaged over the multiprocessors
  double sm_hz = 0;         // mean clock of the multiprocessors
  double ms = 0;            // of the call on the device
  std::string why;          // not empty: nothing was counted
};

// `call` puts work on the device; `wait` waits for it. Called as often as the counters need passes. No recording may be open.
Counted count_tensor_work(int device, const std::function<void()>& call, const std::function<void()>& wait);

}  // namespace headroom::profile
