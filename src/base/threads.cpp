#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

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

Threads::Threads(int count) {
  const int total = count > 0 ? count : available_cores();
  try {
    for (int worker = 1; worker < total; ++worker) workers_.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error& e) {
    const auto started = workers_.size();
    stop();
    throw Error(Code::out_of_memory, fmt::format("the system started {} of {} threads: {}", started, total - 1, e.what()));
  } catch (...) {
    stop();
    throw;
  }
}

Threads::~Threads() { stop(); }

void Threads::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (auto& w : workers_) w.join();
}

void Threads::run(std::int64_t pieces, Call call, void* callee) {
  if (pieces <= 0) return;
  std::lock_guard only(one_caller_);
  {
    std::lock_guard lock(mutex_);
    call_ = call, callee_ = callee, pieces_ = pieces, failure_ = nullptr;
    next_.store(0, std::memory_order_relaxed);
    busy_ = int(workers_.size());
    ++round_;
  }
  start_.notify_all();
  take_pieces(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Threads::take_pieces(int worker) {
  try {
    for (std::int64_t piece; (piece = next_.fetch_add(1, std::memory_order_relaxed)) < pieces_;) call_(callee_, piece, worker);
  } catch (...) {
    next_.store(pieces_, std::memory_order_relaxed);  // nobody starts another piece
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void Threads::work(int worker) {
  for (std::uint64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
    }
    take_pieces(worker);
    std::lock_guard lock(mutex_);
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace headroom
