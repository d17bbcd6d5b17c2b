// Recording — runs a call a few times with marks on, and makes a timeline of it: of the host's clock on a CPU, of the device's activity
// on a GPU, whether the call launches kernels one by one or a graph that was recorded while the marks listened.
//
// Order of calls: listener() goes into the Context before the first call that is recorded (on a GPU before its graph is); step() runs
// and records one; timeline() may be asked after any step. One recording of a GPU at a time.
//
// With a TimelineTrace, what is recorded is in its file soon after it happened, so that a program that dies leaves it: on a CPU within
// a tenth of a second, on a GPU at the end of each step.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "instruments/profile/trace_timeline.h"

namespace headroom::profile {

class Recording {
 public:
  explicit Recording(const Ledger*, TimelineTrace* = nullptr);  // of the CPU
  // An Error (unsupported) when the GPU's activity cannot be had.
  Recording(const Ledger*, std::function<void()> wait_for_gpu, TimelineTrace* = nullptr);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  Listener* listener() { return &marks_; }
  void step(const std::function<void()>& call);
  Timeline timeline() const;
  double overhead_ns() const;  // of one step: what marks and the trace, or CUPTI, took

 private:
  class HostEcho;
  Timeline host_timeline() const;
  Timeline gpu_timeline() const;
  std::vector<Slice> gpu_slices(std::size_t first) const;  // of what was heard from there on
  std::vector<Moment> gpu_memory(const std::vector<Slice>&) const;
  void write_host();
  void write_gpu();

  const Ledger* ledger_;
  std::function<void()> wait_;
  TimelineTrace* trace_ = nullptr;
  std::unique_ptr<Echo> echo_;
  Marks marks_;
  std::vector<Span> steps_;
  std::size_t events_before_ = 0;  // of the ledger, when this was made
  std::size_t first_event_ = 0;    // of the last step
  std::int64_t origin_ns_ = 0, step_start_ns_ = 0;

  struct Written {  // into the trace, when last, and what that took of the steps
    std::vector<Place> places;
    std::size_t events = 0, heard = 0;
    std::int64_t at_ns = 0, took_ns = 0;
  } written_;
};

}  // namespace headroom::profile
