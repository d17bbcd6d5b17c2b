// Hardware counters of a call: the tensor pipes' active cycles, and the clock. Needs permission to read
// performance counters; without it, `why` says what to do.
#pragma once
#include <functional>
#include <string>

namespace headroom::profile {

struct Counted {
  double tensor_share = 0;  // active cycles of the tensor pipe over all cycles, mean over the multiprocessors
  double sm_hz = 0;         // mean clock of the multiprocessors
  double ms = 0;            // time of the call on the device
  std::string why;          // the reason, if nothing was counted
};

// `call` queues work on the device; `wait` waits for it. They run once per pass that the counters need. No recording may be open.
Counted count_tensor_work(int device, const std::function<void()>& call, const std::function<void()>& wait);

}  // namespace headroom::profile
