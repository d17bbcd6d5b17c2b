// A pool of threads that share out numbered pieces of work. Which worker takes which piece is open; results must not depend on it.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace headroom {

class Threads {
 public:
  explicit Threads(int count = 0);  // 0: every core this process may use
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int count() const { return int(workers_.size()) + 1; }

  // Calls body(piece, worker) for every piece in [0, pieces); worker < count(). Returns when all are done; allocates nothing.
  // The first exception of a body is rethrown here. One caller at a time; a body must not call back into the same pool.
  template <class Body>
  void share(std::int64_t pieces, Body&& body) {
    using Callee = std::remove_reference_t<Body>;
    run(
        pieces, [](void* callee, std::int64_t piece, int worker) { (*static_cast<Callee*>(callee))(piece, worker); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void*, std::int64_t, int);
  void run(std::int64_t pieces, Call call, void* callee);
  void take_pieces(int worker);
  void work(int worker);
  void stop();

  std::vector<std::thread> workers_;
  std::mutex mutex_, one_caller_;
  std::condition_variable start_, done_;
  std::uint64_t round_ = 0;
  int busy_ = 0;
  bool stop_ = false;
  Call call_ = nullptr;
  void* callee_ = nullptr;
  std::int64_t pieces_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::exception_ptr failure_;
};

int available_cores();  // cores this process may run on (affinity and cgroup quota respected)

}  // namespace headroom
