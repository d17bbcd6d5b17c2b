// A point in a queue that another queue can wait for. Between streams that are being recorded into one graph it becomes an edge of it.
#pragma once
#include <utility>

namespace headroom {

class Event {
 public:
  Event();  // on the current device
  ~Event();
  Event(Event&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  void record(void* stream) const;   // a cudaStream_t: after what is on it so far
  void hold_up(void* stream) const;  // later work on the stream runs after the point that was recorded last
  bool passed() const;               // an Error if anything before it failed; never waits
  void wait() const;                 // until it has passed; at once if it was never recorded

 private:
  void* raw_ = nullptr;
};

}  // namespace headroom
