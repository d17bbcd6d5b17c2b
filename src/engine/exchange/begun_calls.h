// Calls that were begun: a thread makes them in their order, and the caller goes on. A call has a ticket, counted from 1.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace headroom {

class BegunCalls {
 public:
  static constexpr std::int64_t most = 128;  // not yet made at once: begin() waits until there is room

  ~BegunCalls();  // makes those that are left

  std::int64_t next() const;                // the ticket of the next
  void begin(std::function<void()> call);   // one thread begins calls
  bool is_made(std::int64_t ticket) const;  // these two throw what the call threw; any thread may ask
  void wait(std::int64_t ticket) const;
  void wait_for_all() const;  // throws nothing

 private:
  void make_them();
  void throw_what_it_threw(std::int64_t ticket) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::map<std::int64_t, std::exception_ptr> threw_;
  std::int64_t begun_ = 0, made_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace headroom
