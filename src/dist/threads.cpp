#include "dist/threads.h"

#include <cstring>
#include <exception>
#include <thread>

#include "base/error.h"
#include "base/text.h"

namespace headroom::dist {

Meeting::Meeting(int ranks, std::chrono::milliseconds limit)
    : ranks_(ranks), limit_(limit), shown_(std::size_t(ranks)), here_(std::size_t(ranks)) {}

void Meeting::end(int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (ended_.empty()) ended_ = fmt::format("rank {} ended: {}", rank, why);
  changed_.notify_all();
}

void Meeting::check_alive() {
  const std::lock_guard lock(mutex_);
  check(ended_.empty(), Code::io, "{}", ended_);
}

void Meeting::show(int rank, const Shown& what) {
  {
    const std::lock_guard lock(mutex_);
    shown_[std::size_t(rank)] = what;
  }
  meet(rank, what.call);
  for (int i = 1; i < ranks_; ++i) {  // every rank sees the same first difference
    const Shown &first = shown(0), &other = shown(i);
    check(other.call == first.call, Code::bad_argument, "rank 0 calls {}, rank {} calls {}", names_of<Call>.of(first.call), i,
          names_of<Call>.of(other.call));
    check(other.bytes == first.bytes, Code::bad_argument, "{}: rank 0 brings {} bytes, rank {} brings {}", names_of<Call>.of(first.call),
          first.bytes, i, other.bytes);
    check(other.root == first.root, Code::bad_argument, "{}: rank 0 names rank {} as the root, rank {} names {}",
          names_of<Call>.of(first.call), first.root, i, other.root);
  }
}

void Meeting::meet(int rank, Call call) {
  std::unique_lock lock(mutex_);
  const auto turn = turn_;
  here_[std::size_t(rank)] = true;
  if (++arrived_ == ranks_) {
    arrived_ = 0, ++turn_;
    here_.assign(here_.size(), false);
    changed_.notify_all();
  }
  const bool in_time = changed_.wait_for(lock, limit_, [&] { return turn_ != turn || !ended_.empty(); });
  if (turn_ != turn) return;  // all were here, whatever happened since
  check(ended_.empty(), Code::io, "{}: {}", names_of<Call>.of(call), ended_);
  if (in_time) return;
  std::vector<std::string> missing;
  for (int i = 0; i < ranks_; ++i)
    if (!here_[std::size_t(i)]) missing.push_back(std::to_string(i));
  throw Error(Code::io, fmt::format("{}: rank {} waited {:g} s, and rank {} did not come", names_of<Call>.of(call), rank,
                                    std::chrono::duration<double>(limit_).count(), joined(missing, " and ")));
}

void ThreadComm::end(const std::string& why) noexcept {
  try {
    meeting_.end(rank(), why);
  } catch (...) {  // a sentence that cannot be kept: the others' wait has a limit
  }
}

// A rank leaves a call only when all have read: what it showed may change right after.
void ThreadComm::do_exchange(const Tensor& mine, const Tensor& theirs, void*, Own own) {
  meeting_.show(rank(), {Call::exchange, mine.data, mine.bytes(), 0});
  const std::size_t part = mine.bytes() / std::size_t(ranks());
  for (int i = 0; i < ranks() && part > 0; ++i) {
    if (i == rank() && own == Own::left) continue;
    std::memcpy(theirs.as<char>() + std::size_t(i) * part, static_cast<const char*>(meeting_.shown(i).data) + std::size_t(rank()) * part,
                part);
  }
  meeting_.meet(rank(), Call::exchange);
}

void ThreadComm::do_gather(const Tensor& part, const Tensor& whole, void*) {
  meeting_.show(rank(), {Call::gather, part.data, part.bytes(), 0});
  for (int i = 0; i < ranks() && part.bytes() > 0; ++i) {
    char* to = whole.as<char>() + std::size_t(i) * part.bytes();
    if (to != meeting_.shown(i).data) std::memcpy(to, meeting_.shown(i).data, part.bytes());
  }
  meeting_.meet(rank(), Call::gather);
}

void ThreadComm::do_broadcast(const Tensor& whole, int root, void*) {
  meeting_.show(rank(), {Call::broadcast, whole.data, whole.bytes(), root});
  if (rank() != root && whole.bytes() > 0) std::memcpy(whole.data, meeting_.shown(root).data, whole.bytes());
  meeting_.meet(rank(), Call::broadcast);
}

void ThreadComm::do_barrier(void*) {
  meeting_.show(rank(), {Call::barrier, nullptr, 0, 0});
  meeting_.meet(rank(), Call::barrier);
}

void as_threads(int ranks, const std::function<void(Comm&)>& body, std::chrono::milliseconds limit) {
  Meeting meeting(ranks, limit);
  std::mutex one;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      ThreadComm comm(meeting, r);
      const auto failed = [&](const char* why) {
        {
          const std::lock_guard lock(one);
          if (!first) first = std::current_exception();
        }
        comm.end(why);
      };
      try {
        body(comm);
      } catch (const std::exception& e) { failed(e.what()); } catch (...) {
        failed("an unknown failure");
      }
    });
  for (auto& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace headroom::dist
