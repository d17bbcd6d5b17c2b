// Recording — runs a call a few times with marks on, and makes a timeline of it. On a CPU here; on a GPU the activity of the device is
// recorded beside it (gpu.h).
//
// Order of calls: listener() goes into the Context before the first call that is recorded; step() runs and records one; timeline()
// may be asked after any step.
#pragma once
#include <functional>
#include <memory>

#include "instruments/profile/timeline.h"

namespace headroom::profile {

class Recording {
 public:
  explicit Recording(const Ledger* ledger) : ledger_(ledger), marks_(ledger) {}

  Listener* listener() { return &marks_; }
  void step(const std::function<void()>& call);
  Timeline timeline() const;

 private:
  const Ledger* ledger_;
  Marks marks_;
  std::vector<Span> steps_;
  std::size_t first_event_ = 0;  // of the last step
  std::int64_t origin_ns_ = 0;
};

}  // namespace headroom::profile
