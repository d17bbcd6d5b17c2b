#include "engine/exchange/begun_calls.h"

#include <utility>

namespace headroom {

BegunCalls::~BegunCalls() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::int64_t BegunCalls::next() const {
  const std::lock_guard lock(mutex_);
  return begun_ + 1;
}

void BegunCalls::begin(std::function<void()> call) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_ - made_ < most; });
    waiting_.push_back(std::move(call));
    ++begun_;
    if (!thread_.joinable()) thread_ = std::thread([this] { make_them(); });
  }
  changed_.notify_all();
}

void BegunCalls::make_them() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    auto call = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    std::exception_ptr threw;
    try {
      call();
    } catch (...) { threw = std::current_exception(); }
    call = nullptr;
    lock.lock();
    ++made_;
    if (threw) threw_[made_] = threw;
    changed_.notify_all();
  }
}

void BegunCalls::throw_what_it_threw(std::int64_t ticket) const {
  if (const auto at = threw_.find(ticket); at != threw_.end()) std::rethrow_exception(at->second);
}

bool BegunCalls::is_made(std::int64_t ticket) const {
  const std::lock_guard lock(mutex_);
  if (made_ < ticket) return false;
  throw_what_it_threw(ticket);
  return true;
}

void BegunCalls::wait(std::int64_t ticket) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return made_ >= ticket; });
  throw_what_it_threw(ticket);
}

void BegunCalls::wait_for_all() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return made_ == begun_; });
}

}  // namespace headroom
