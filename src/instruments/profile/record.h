// Recording — runs a call a few times with marks on, and makes a timeline of it: of the host's clock on a CPU, of the device's activity
// on a GPU, whether the call launches kernels one by one or a graph that was recorded while the marks listened.
//
// Order of calls: listener() goes into the Context before the first call that is recorded (on a GPU before its graph is); step() runs
// and records one; timeline() may be asked after any step. One recording of a GPU at a time.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "instruments/profile/timeline.h"

namespace headroom::profile {

class Recording {
 public:
  explicit Recording(const Ledger*);                             // of the CPU
  Recording(const Ledger*, std::function<void()> wait_for_gpu);  // an Error (unsupported) when its activity cannot be had
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  Listener* listener() { return &marks_; }
  void step(const std::function<void()>& call);
  Timeline timeline() const;
  double overhead_ns() const;  // of one step: what marks, or CUPTI, took

 private:
  Timeline host_timeline() const;
  Timeline gpu_timeline() const;

  const Ledger* ledger_;
  std::function<void()> wait_;
  std::unique_ptr<Echo> echo_;
  Marks marks_;
  std::vector<Span> steps_;
  std::size_t events_before_ = 0;  // of the ledger, when this was made
  std::size_t first_event_ = 0;    // of the last step
  std::int64_t origin_ns_ = 0;
};

}  // namespace headroom::profile
