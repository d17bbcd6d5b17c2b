#include "base/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"

namespace headroom {

int available_cores() {
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");  // "max 100000" or "200000 100000"
  std::string quota;
  double period = 0;
  if (quota_file >> quota >> period && quota != "max" && period > 0) cores = std::min(cores, int(std::ceil(std::stod(quota) / period)));
  return std::max(cores, 1);
}

namespace {

std::atomic<std::uint64_t> forks{0};  // the handler that counts does nothing else: a child of a process with threads may do little

}  // namespace

std::uint64_t fork_count() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  check(registered == 0, Code::out_of_memory, "out of memory: the system refused a fork handler (error {})", registered);
  return forks.load(std::memory_order_relaxed);
}

using Clock = std::chrono::steady_clock;

struct Threads::Pool {
  explicit Pool(int count);
  ~Pool() { stop(); }
  void run(std::int64_t pieces, Call call, void* callee);
  void take_pieces(int worker);
  void work(int worker);
  void stop();

  const std::uint64_t made_at_fork = fork_count();
  std::vector<std::thread> workers;
  std::mutex mutex, one_caller;
  std::condition_variable start, done;
  std::uint64_t round = 0;
  int busy = 0;
  bool ending = false;
  Call call = nullptr;
  void* callee = nullptr;
  std::int64_t pieces = 0;
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
};

Threads::Threads(int count) : count_(count > 0 ? count : available_cores()), pool_(new Pool(count_)) {}

Threads::~Threads() {
  Pool* const last = pool_.load();
  if (last->made_at_fork == fork_count()) delete last;  // else its threads are another process's: nothing to wait for, nothing to free
}

// The pool of a parent stays as the fork left it: a mutex in it may be locked for good by a thread that is not here.
Threads::Pool& Threads::pool() {
  Pool* now = pool_.load(std::memory_order_acquire);
  if (now->made_at_fork == fork_count()) [[likely]]
    return *now;
  auto fresh = std::make_unique<Pool>(count_);
  if (pool_.compare_exchange_strong(now, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *now;  // another thread was first
}

void Threads::run(std::int64_t pieces, Call call, void* callee) {
  if (pieces > 0) pool().run(pieces, call, callee);
}

Threads::Pool::Pool(int count) {
  try {
    for (int worker = 1; worker < count; ++worker) workers.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error& e) {
    const auto started = workers.size();
    stop();
    throw Error(Code::out_of_memory, fmt::format("the system started {} of {} threads: {}", started, count - 1, e.what()));
  } catch (...) {
    stop();
    throw;
  }
}

void Threads::Pool::stop() {
  {
    std::lock_guard lock(mutex);
    ending = true;
  }
  start.notify_all();
  for (auto& w : workers) w.join();
}

void Threads::Pool::run(std::int64_t count, Call what, void* of) {
  check_host_is_not_being_asked();
  std::lock_guard only(one_caller);
  {
    std::lock_guard lock(mutex);
    call = what;
    callee = of;
    pieces = count;
    failure = nullptr;
    next.store(0, std::memory_order_relaxed);
    busy = int(workers.size());
    ++round;
  }
  start.notify_all();
  take_pieces(0);
  std::unique_lock lock(mutex);
  done.wait(lock, [this] { return busy == 0; });
  if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
}

void Threads::Pool::take_pieces(int worker) {
  try {
    const bool asks = worker == 0 && host_is_asked();  // the caller's own thread
    if (asks) stop_if_host_says();                     // the others may take all pieces
    std::int64_t piece, between = 1, until = 1;        // the clock is read about once a millisecond: pieces may be as short as it
    for (auto read = asks ? Clock::now() : Clock::time_point(); (piece = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) {
      call(callee, piece, worker);
      if (!asks || --until > 0) continue;
      stop_if_host_says();
      const auto now = Clock::now();
      until = between = now - read < std::chrono::milliseconds(1) ? 2 * between : 1;
      read = now;
    }
  } catch (...) {
    next.store(pieces, std::memory_order_relaxed);  // no thread starts another piece
    std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
  }
}

void Threads::Pool::work(int worker) {
  for (std::uint64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex);
      start.wait(lock, [&] { return ending || round != seen; });
      if (ending) return;
      seen = round;
    }
    take_pieces(worker);
    std::lock_guard lock(mutex);
    if (--busy == 0) done.notify_one();
  }
}

}  // namespace headroom
