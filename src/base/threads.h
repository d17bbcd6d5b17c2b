// A pool of threads that share out numbered pieces of work. Which worker takes which piece is open; results must not depend on it.
// A fork leaves the child without the pool's threads: there the pool starts new ones at its first use.
#pragma once
#include <atomic>
#include <cstdint>
#include <type_traits>

namespace headroom {

class Threads {
 public:
  explicit Threads(int count = 0);  // 0: every core this process may use
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int count() const { return count_; }

  // Calls body(piece, worker) for every piece in [0, pieces); worker < count(). Returns when all are done; allocates nothing.
  // The first exception of a body is rethrown here. One caller at a time; a body must not call back into the same pool.
  // A program that asked to be asked (interrupt.h) may end it between two pieces: an Error (interrupted), and other pieces are not begun.
  template <class Body>
  void share(std::int64_t pieces, Body&& body) {
    using Callee = std::remove_reference_t<Body>;
    run(
        pieces, [](void* callee, std::int64_t piece, int worker) { (*static_cast<Callee*>(callee))(piece, worker); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void*, std::int64_t, int);
  struct Pool;
  void run(std::int64_t pieces, Call call, void* callee);
  Pool& pool();

  int count_;
  std::atomic<Pool*> pool_;
};

// How often this process's ancestors forked since the first call. A changed number means that the pool's threads are gone.
std::uint64_t fork_count();

int available_cores();  // cores this process may run on (affinity and cgroup quota respected)

}  // namespace headroom
