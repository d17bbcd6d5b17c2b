// Every rank's end of a rendezvous: it sends to rank 0, and a thread hears what rank 0 says, or that it is gone.
#pragma once
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "dist/quiet.h"
#include "dist/rendezvous_words.h"

namespace headroom::dist {

class Rendezvous::Listener {
 public:
  Listener(Socket s, int rank, milliseconds silence) : rank_(rank), silence_(silence), beat_(silence / 8), socket_(std::move(s)) {
    const timeval limit{silence.count() / 1000, silence.count() % 1000 * 1000};  // for a rank 0 that takes nothing
    setsockopt(socket_.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    stop_ = Socket(::eventfd(0, EFD_CLOEXEC));
    thread_ = std::thread([this] { listen(); });
  }
  ~Listener() {
    const std::uint64_t one = 1;
    if (::write(stop_.fd(), &one, sizeof one) < 0) {  // an eventfd that holds a 0 takes a 1
    }
    thread_.join();
  }

  void send(const Frame& f) {
    const std::lock_guard lock(sending_);
    if (!send_frame(socket_, f)) ::shutdown(socket_.fd(), SHUT_RDWR);  // the listening thread hears of it
  }

  // hurried: a request to stop ends the waiting; elsewhere ranks agree on it, so that all stop at the same call.
  std::string take(std::uint64_t round, const char* what, milliseconds limit, bool hurried = false) {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return brought_.contains(round) || !why_.empty(); };
    bool in_time = false;
    for (const auto until = Clock::now() + limit; !in_time && Clock::now() < until;) {
      in_time = changed_.wait_for(lock, hurried ? std::min(limit, milliseconds(200)) : limit, there);
      if (!hurried || in_time) continue;
      stop_if_interrupted(" while it waited for the other ranks");
      stop_if_host_says();
    }
    if (const auto at = brought_.find(round); at != brought_.end()) {
      std::string text = std::move(at->second);
      brought_.erase(at);
      return text;
    }
    if (!why_.empty()) throw_ended("");
    check(in_time, Code::io, "rank {} waited {} for the others to bring {}", rank_, seconds_in_words(limit), what);
    return {};
  }

  bool wait_for_all_to_leave(milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return all_left_ || !why_.empty(); }) && all_left_;
  }
  bool wait_for_end(milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return !why_.empty(); });
  }

  std::optional<std::string> ended() const {
    const std::lock_guard lock(mutex_);
    return why_.empty() ? std::nullopt : std::optional(why_);
  }
  bool speaks() const {
    const std::lock_guard lock(mutex_);
    return speaks_locked();
  }
  void check_alive(const char* call) const {
    const std::lock_guard lock(mutex_);
    if (!why_.empty()) throw_ended(*call ? std::string(call) + ": " : "");
  }
  std::shared_ptr<void> on_end(std::function<void()> f) {
    auto held = std::make_shared<std::function<void()>>(std::move(f));
    const std::lock_guard lock(calling_);
    calls_.push_back(held);
    return {held.get(), [this, held](void*) {
              const std::lock_guard lock(calling_);  // not while it runs
              std::erase(calls_, held);
            }};
  }

 private:
  bool speaks_locked() const { return ended_rank_ == 0 && !said_ ? rank_ == 1 : rank_ == 0; }
  [[noreturn]] void throw_ended(const std::string& before) const {
    if (speaks_locked()) throw Error(Code::io, before + why_);
    throw Quiet(Code::io, before + why_);
  }

  void listen() {
    auto heard = Clock::now(), sent = heard;
    Awake awake(silence_);
    for (bool open = true; open;) {
      pollfd polls[2] = {{stop_.fd(), POLLIN, 0}, {socket_.fd(), POLLIN, 0}};
      ::poll(polls, 2, int(beat_.count()));
      if (polls[0].revents) return;
      const auto now = Clock::now();
      if (awake.slept()) heard = now;
      if (polls[1].revents) {
        Frame f;
        const Got got = inbox_.take(socket_, f);
        heard = now;
        if (got == Got::frame) take_in(f);
        if (got == Got::gone) lost(gone_without_word), open = false;
      } else if (now - heard > silence_) {
        lost(fmt::format("nothing was heard of it for {}", seconds_in_words(silence_)));
        open = false;
      }
      if (now - sent > beat_) sent = now, send({Frame::Kind::beat, rank_, 0, {}});
    }
  }

  void take_in(Frame& f) {
    if (f.kind == Frame::Kind::ended) return set_end(f.text, f.rank, f.round == 1);
    const std::lock_guard lock(mutex_);
    if (f.kind == Frame::Kind::brought) brought_[f.round] = std::move(f.text);
    if (f.kind == Frame::Kind::leave) all_left_ = true;
    changed_.notify_all();
  }

  void lost(const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (all_left_ || !why_.empty()) return;
    }
    set_end(fmt::format("rank 0 ended: {}", why), 0, false);
  }

  void set_end(const std::string& why, int rank, bool said) {
    {
      const std::lock_guard lock(mutex_);
      if (!why_.empty()) return;
      why_ = why, ended_rank_ = rank, said_ = said;
      changed_.notify_all();
    }
    const std::lock_guard lock(calling_);
    for (const auto& call : calls_) (*call)();
  }

  const int rank_;
  const milliseconds silence_, beat_;
  Socket socket_, stop_;
  Inbox inbox_;
  std::mutex sending_, calling_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::string> brought_;
  std::string why_;
  int ended_rank_ = -1;
  bool said_ = false, all_left_ = false;
  std::vector<std::shared_ptr<std::function<void()>>> calls_;
  std::thread thread_;
};

}  // namespace headroom::dist
