// Rank 0's end of a rendezvous: a thread to which every rank is connected. It lets ranks in and strangers not, passes on what all have brought, and
// tells all of an end.
#pragma once
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/printable.h"
#include "dist/rendezvous_words.h"

namespace headroom::dist {

class Rendezvous::Server {
 public:
  Server(Coming& c, Socket own)
      : ranks_(c.ranks),
        wait_(c.wait),
        silence_(c.silence),
        beat_(c.silence / 8),
        fate_(c.fate),
        where_(c.address.text()),
        greeting_(greeting_of(c)) {
    if (c.connected.empty() && ranks_ > 1) listener_ = listen_at(c.address, std::max(ranks_, int(most_strangers)));
    add(std::move(own), 0);
    for (std::size_t i = 0; i < c.connected.size(); ++i) add(std::move(c.connected[i]), int(i) + 1);
    stop_ = Socket(::eventfd(0, EFD_CLOEXEC));
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    const std::uint64_t one = 1;
    if (::write(stop_.fd(), &one, sizeof one) < 0) {  // an eventfd that holds a 0 takes a 1
    }
    thread_.join();
  }

 private:
  static constexpr milliseconds greeting_limit = std::chrono::seconds(5);
  static constexpr std::size_t most_strangers = 64;  // connections whose rank is not known yet

  struct Connection {
    Socket socket;
    int rank = -1;      // −1 until it said hello
    int expected = -1;  // rank of a process that was started from here; −1: any
    Inbox inbox{};
    Outbox outbox{};
    Clock::time_point came = Clock::now(), heard = came;
    bool left = false, refused = false;
    bool stranger() const { return rank < 0 && expected < 0; }
  };

  static std::string ranks_in_words(const std::vector<int>& ranks) {
    std::vector<std::string> words;
    for (const int r : ranks) words.push_back(std::to_string(r));
    return (words.size() > 1 ? "ranks " : "rank ") + joined(words, " and ");
  }
  static std::string job_of(const std::string& greeting) {
    const auto begin = std::min(std::string_view(protocol).size() + 1, greeting.size());
    return printable(greeting.substr(begin));
  }

  Connection& add(Socket s, int expected) {
    Connection& c = connections_.emplace_back();
    c.socket = std::move(s);
    c.expected = expected;
    return c;
  }

  void serve() {
    const auto start = Clock::now();
    std::optional<Clock::time_point> stopping;  // until all others have heard why, late ones too
    Awake awake(silence_);
    while (true) {
      std::vector<pollfd> polls{{stop_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};  // a closed one is −1, which poll passes over
      for (const auto& c : connections_) polls.push_back({c.socket.fd(), short(c.outbox.empty() ? POLLIN : POLLIN | POLLOUT), 0});
      if (::poll(polls.data(), polls.size(), int(stopping ? 20 : beat_.count())) < 0) continue;
      const auto now = Clock::now();
      if (polls[0].revents)
        read_out(stop_), stopping = now + milliseconds(int(here_.size()) + turned_away_ < ranks_ && !gave_up_ ? 3000 : 1500);
      if (stopping && (now > *stopping || (all_sent() && (all_left_ || nobody_listens())))) return;
      if (awake.slept())
        for (auto& c : connections_) c.heard = now;
      auto events = polls.begin() + 2;
      for (auto& c : connections_) {  // those that come meanwhile are added behind the end of this list
        if (events == polls.end()) break;
        const short what = (events++)->revents;
        if (what & POLLOUT) flush(c);
        if (what & ~POLLOUT) hear(c);
      }
      if (polls[1].revents) let_in();
      for (auto& c : connections_) {
        if (c.socket && c.rank > 0 && !c.left && now - c.heard > silence_)
          end(c.rank, fmt::format("nothing was heard of it for {}", seconds_in_words(silence_)), false);
        if (c.stranger() && now - c.came > greeting_limit) c.socket.close();
      }
      connections_.remove_if([](const Connection& c) { return !c.socket; });
      if (now - sent_beat_ > beat_) sent_beat_ = now, tell_all({Frame::Kind::beat, 0, 0, {}});
      if (int(here_.size()) < ranks_ && now - start > wait_) nobody_comes();
    }
  }

  void let_in() {
    for (std::size_t n = 0; n < most_strangers && listener_; ++n) {
      Socket s = accept_from(listener_);
      if (!s) return;
      if (std::size_t(std::count_if(connections_.begin(), connections_.end(), [](const Connection& c) { return c.stranger(); })) >=
          most_strangers)
        connections_.remove_if([first = true](const Connection& c) mutable { return c.stranger() && std::exchange(first, false); });
      hear(add(std::move(s), -1));  // a rank names itself at once
    }
  }

  bool all_sent() const {
    return std::all_of(connections_.begin(), connections_.end(), [](const Connection& c) { return !c.socket || c.outbox.empty(); });
  }

  bool nobody_listens() const {  // all other ranks have closed their end, and none is still to join
    if (int(here_.size()) + turned_away_ < ranks_ && !gave_up_) return false;
    return std::none_of(connections_.begin(), connections_.end(),
                        [](const Connection& c) { return c.socket && c.rank != 0 && !c.stranger(); });
  }

  static void read_out(const Socket& event) {
    std::uint64_t count = 0;
    if (::read(event.fd(), &count, sizeof count) < 0) {  // it was readable
    }
  }

  void hear(Connection& c) {
    Frame f;
    c.heard = Clock::now();
    const Got got = c.inbox.take(c.socket, f, c.stranger() ? From::stranger : From::rank);
    if (got == Got::nothing) return;
    if (got == Got::gone) return lose(c);
    if (c.refused) return;
    if (c.rank < 0 && f.kind != Frame::Kind::hello) return c.socket.close();  // a stranger
    switch (f.kind) {
      case Frame::Kind::hello: return greet(c, f);
      case Frame::Kind::bring: return bring(c, f);
      case Frame::Kind::end: return end(c.rank, f.text, true);
      case Frame::Kind::leave:
        c.left = true;
        if (++left_ == ranks_) tell_all({Frame::Kind::leave, 0, 0, {}}), all_left_ = true;
        return;
      default: return;
    }
  }

  void lose(Connection& c) {
    const int rank = c.rank >= 0 ? c.rank : c.expected;
    c.socket.close();
    if (rank >= 0 && !c.left) end(rank, fate_ && rank > 0 ? fate_(rank) : gone_without_word, false);
  }

  void post(Connection& c, const Frame& f) {
    c.outbox.put(f);
    flush(c);
  }
  static void flush(Connection& c) {
    if (!c.outbox.send(c.socket)) c.outbox = {};  // the other side is gone: the next look at it says so
  }

  void greet(Connection& c, const Frame& f) {
    if (!f.text.starts_with("headroom ") || c.rank >= 0) return c.socket.close();  // a stranger
    const int theirs = int(f.round);
    if (f.text != greeting_)
      return refuse(c, f.text.starts_with(protocol)
                           ? fmt::format("the ranks of another job meet there ({}; this rank's is {})", job_of(greeting_), job_of(f.text))
                           : "another version of headroom is there");
    if (theirs != ranks_) return refuse(c, fmt::format("it was started as one of {} ranks, rank 0 as one of {}", theirs, ranks_));
    if (f.rank < 0 || f.rank >= ranks_ || here_.contains(f.rank)) return refuse(c, "another process is that rank already");
    if (ended_) {
      ++turned_away_;
      return post(c, *ended_);
    }
    c.rank = f.rank;
    here_.insert(f.rank);
    if (int(here_.size()) == ranks_) listener_.close();  // all have joined: strangers find no door
    post(c, {Frame::Kind::welcome, 0, 0, {}});
  }

  void refuse(Connection& c, const std::string& why) {  // this one alone: it changes nothing for the others
    c.refused = true;
    post(c, {Frame::Kind::refused, 0, 0, why});
    if (refusals_.size() < 8) refusals_.insert(why);
  }

  void nobody_comes() {
    std::vector<int> missing;
    for (int r = 0; r < ranks_; ++r)
      if (!here_.contains(r)) missing.push_back(r);
    gave_up_ = true;
    if (!ended_)
      tell_end({Frame::Kind::ended, -1, 1,
                fmt::format("rendezvous {}: {} of {} did not come within {}{}{}", where_, ranks_in_words(missing), ranks_,
                            seconds_in_words(wait_), refusals_.empty() ? "" : "; a process that came was refused: ",
                            joined(std::vector<std::string>(refusals_.begin(), refusals_.end()), "; "))});
  }

  void bring(const Connection& c, Frame& f) {
    auto& round = rounds_[f.round];
    round.resize(std::size_t(ranks_));
    round[std::size_t(c.rank)] = std::move(f.text);
    if (++brought_[f.round] < ranks_) return;
    tell_all({Frame::Kind::brought, 0, f.round, packed(round)});
    rounds_.erase(f.round), brought_.erase(f.round);
  }

  void end(int rank, const std::string& why, bool said) {
    if (!ended_) tell_end({Frame::Kind::ended, rank, std::uint64_t(said), fmt::format("rank {} ended: {}", rank, why)});
  }

  void tell_end(Frame f) {
    ended_ = std::move(f);
    tell_all(*ended_);
  }

  void tell_all(const Frame& f) {
    for (auto& c : connections_)
      if (c.socket && c.rank >= 0) post(c, f);
  }

  int ranks_;
  milliseconds wait_, silence_, beat_;
  std::function<std::string(int)> fate_;
  std::string where_, greeting_;
  Socket listener_, stop_;
  std::list<Connection> connections_;
  std::set<int> here_;
  std::set<std::string> refusals_;
  std::map<std::uint64_t, std::vector<std::string>> rounds_;
  std::map<std::uint64_t, int> brought_;
  std::optional<Frame> ended_;
  int left_ = 0, turned_away_ = 0;
  bool all_left_ = false, gave_up_ = false;
  Clock::time_point sent_beat_ = Clock::now();
  std::thread thread_;
};

}  // namespace headroom::dist
