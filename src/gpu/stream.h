// A CUDA stream, a recorded graph of work, and a stopwatch. Handles are CUDA's, declared without its headers.
//
// Order of calls: stopwatch.start(stream), work, stopwatch.stop(stream), then elapsed_ms() waits for the work.
#pragma once
#include <functional>
#include <utility>

namespace headroom {

class Stream {
 public:
  explicit Stream(int device);  // makes the device current for this thread
  ~Stream();
  Stream(Stream&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  void* raw() const { return raw_; }  // a cudaStream_t
  void wait() const;                  // throws Error if work before it failed

 private:
  void* raw_ = nullptr;
};

class Graph {  // records what `work` puts on the stream, and launches it as one graph; nothing runs while recording
 public:
  Graph(void* stream, const std::function<void()>& work);  // a cudaStream_t
  Graph(const Stream& s, const std::function<void()>& work) : Graph(s.raw(), work) {}
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(void* stream) const;
  void launch(const Stream& s) const { launch(s.raw()); }

 private:
  void* raw_ = nullptr;
};

class Stopwatch {
 public:
  Stopwatch();
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  void start(const Stream&);
  void stop(const Stream&);
  float elapsed_ms() const;

 private:
  void *start_ = nullptr, *stop_ = nullptr;
};

}  // namespace headroom
