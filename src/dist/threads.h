// Ranks as threads of one process: for tests, and for the sanitizers to look at.
//
// Order of calls: as_threads(3, [](Comm& comm) { … }) returns when every rank has; the first failure is rethrown, after the others
// were ended by it.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "dist/comm.h"

namespace headroom::dist {

class Meeting {  // shared by the threads
 public:
  explicit Meeting(int ranks, std::chrono::milliseconds limit = std::chrono::seconds(10));

  struct Shown {  // one rank's arguments of a call
    Call call;
    const void* data;
    std::size_t bytes;
    int root;
  };
  int ranks() const { return ranks_; }
  const Shown& shown(int rank) const { return shown_[std::size_t(rank)]; }
  void show(int rank, const Shown&);  // then meets
  void meet(int rank, Call);          // returns when every thread has called it
  void end(int rank, const std::string& why);
  void check_alive();

 private:
  const int ranks_;
  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Shown> shown_;
  std::vector<bool> here_;
  int arrived_ = 0;
  std::uint64_t turn_ = 0;
  std::string ended_;
};

class ThreadComm final : public Comm {
 public:
  ThreadComm(Meeting& m, int rank) : Comm(rank, m.ranks()), meeting_(m) {}
  Backend backend() const override { return Backend::threads; }
  std::string route(Call) const override { return "copies"; }
  void check_alive() override { meeting_.check_alive(); }
  void end(const std::string& why) noexcept override;

 protected:
  void do_exchange(const Tensor& mine, const Tensor& theirs, void*, Own) override;
  void do_gather(const Tensor& part, const Tensor& whole, void*) override;
  void do_broadcast(const Tensor& whole, int root, void*) override;
  void do_barrier(void*) override;

 private:
  Meeting& meeting_;
};

void as_threads(int ranks, const std::function<void(Comm&)>& body, std::chrono::milliseconds limit = std::chrono::seconds(10));

}  // namespace headroom::dist
