// Recording — runs a call a few times with marks and makes a timeline: from the host's clock on a CPU, from the device's activity
// on a GPU. There the call may launch kernels one by one, or a graph that was recorded with the marks.
//
// Order of calls: listener() goes into the Context before the first call that is recorded (on a GPU before its graph is); step() runs
// and records one; timeline() may be asked after any step. One recording of a GPU at a time.
//
// With a TimelineTrace, recorded data reaches its file soon, so that it survives if the program dies: on a CPU within
// a tenth of a second, on a GPU at the end of each step.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "instruments/profile/trace_timeline.h"

namespace headroom::profile {

class Recording {
 public:
  explicit Recording(const Ledger*, TimelineTrace* = nullptr);  // records the CPU
  // Throws Error (unsupported) if the GPU's activity cannot be recorded.
  Recording(const Ledger*, std::function<void()> wait_for_gpu, TimelineTrace* = nullptr);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  Listener* listener() { return &marks_; }
  void step(const std::function<void()>& call);
  Timeline timeline() const;
  double overhead_ns() const;  // time that marks and trace, or CUPTI, take of one step

 private:
  class HostEcho;
  Timeline host_timeline() const;
  Timeline gpu_timeline() const;
  std::vector<Slice> gpu_slices(std::size_t first) const;  // slices of the activity from there on
  std::size_t gpu_first_event() const;
  std::vector<Moment> gpu_memory(const std::vector<Slice>&) const;
  void write_host();
  void write_gpu();

  const Ledger* ledger_;
  std::function<void()> wait_;
  TimelineTrace* trace_ = nullptr;
  std::unique_ptr<Echo> echo_;
  Marks marks_;
  std::vector<Span> steps_;
  std::size_t events_before_ = 0;  // the ledger's events when this was made
  std::size_t first_event_ = 0;    // first event of the last step
  std::int64_t origin_ns_ = 0, step_start_ns_ = 0;

  struct Written {  // the last write into the trace, and its share of the steps' time
    std::vector<Regions> places;
    std::size_t events = 0, heard = 0;
    std::int64_t at_ns = 0, took_ns = 0;
  } written_;
};

}  // namespace headroom::profile
