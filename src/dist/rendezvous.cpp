#include "dist/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "base/text.h"
#include "dist/quiet.h"

namespace headroom::dist {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr const char* protocol = "headroom 2";
constexpr milliseconds greeting_limit = std::chrono::seconds(5), knock_limit = std::chrono::seconds(2);
constexpr std::size_t most_strangers = 64;  // connections whose rank is not known yet
constexpr const char* gone_without_word = "its process is gone without a word (killed, or crashed)";

std::string seconds_in_words(milliseconds t) { return fmt::format("{:g} s", std::chrono::duration<double>(t).count()); }

std::string ranks_in_words(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  for (const int r : ranks) words.push_back(std::to_string(r));
  return (words.size() > 1 ? "ranks " : "rank ") + joined(words, " and ");
}

// What a rank says when it comes, and what must be equal: the job's name and the port that was meant, because a rank that finds it
// taken goes on to the next.
std::string greeting_of(const Coming& c) {
  constexpr std::size_t most = 160;
  const std::string port = c.address.local || c.address.port == 0 ? "" : fmt::format("port {}", c.address.port);
  return fmt::format("{} {}{}{}", protocol, port, port.empty() || c.job.empty() ? "" : ", ", c.job).substr(0, most);
}
std::string job_of(const std::string& greeting) {
  const auto begin = std::min(std::string_view(protocol).size() + 1, greeting.size());
  return printable(greeting.substr(begin));
}

// Silence counts only while this process itself runs: one that was stopped for a while, or whose machine slept, starts anew.
class Awake {
 public:
  explicit Awake(milliseconds limit) : limit_(limit) {}
  bool slept() {
    const auto now = Clock::now();
    return now - std::exchange(last_, now) > limit_ / 2;
  }

 private:
  milliseconds limit_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace

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

class Rendezvous::Listener {
 public:
  Listener(Socket s, int rank, int ranks, milliseconds silence)
      : rank_(rank), ranks_(ranks), silence_(silence), beat_(silence / 8), socket_(std::move(s)) {
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
      if (hurried && !in_time) stop_if_interrupted(" while it waited for the other ranks");
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

  const int rank_, ranks_;
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

namespace {

struct Reply {
  bool welcome = false;
  std::string refusal{};
};

Reply reply_to(const Socket& s, const Coming& c, milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  if (!send_frame(s, {Frame::Kind::hello, c.rank, std::uint64_t(c.ranks), greeting_of(c)})) return {};
  Inbox inbox;
  Frame f;
  while (receive_frame(s, inbox, f, deadline) == Got::frame) {
    if (f.kind == Frame::Kind::welcome) return {true};
    if (f.kind == Frame::Kind::refused) return {false, printable(f.text)};
    if (f.kind == Frame::Kind::ended) throw Quiet(Code::io, f.text);
  }
  return {};
}

Socket find_rank_0(Coming& c) {
  if (!c.connected.empty()) {
    if (reply_to(c.connected[0], c, c.wait + std::chrono::seconds(15)).welcome) return std::move(c.connected[0]);
    throw Quiet(Code::io, "rank 0, which started this rank, is gone");
  }
  const auto limit = Clock::now() + c.wait;
  std::string refused;
  do {
    for (int k = 0; k < c.address.ports; ++k) {
      Socket s = connect_to(c.address, k);
      if (!s) continue;
      const Reply reply = reply_to(s, c, knock_limit);
      if (reply.welcome) return s;
      if (reply.refusal.empty()) continue;
      refused = fmt::format("rendezvous {}: rank {} of {} is refused: {}", c.address.text(), c.rank, c.ranks, reply.refusal);
      check(c.address.ports > 1, Code::io, "{}", refused);  // rank 0 is nowhere else
    }
    stop_if_interrupted(fmt::format(" while it looked for rank 0 at {}", c.address.text()));
    std::this_thread::sleep_for(milliseconds(100));
  } while (Clock::now() < limit);
  check(refused.empty(), Code::io, "{}", refused);
  throw Error(Code::io, fmt::format("rendezvous {}: rank {} of {} found no rank 0 there within {}", c.address.text(), c.rank, c.ranks,
                                    seconds_in_words(c.wait)));
}

}  // namespace

Rendezvous::Rendezvous(Coming c) : rank_(c.rank), ranks_(c.ranks), patience_(c.patience) {
  check(c.ranks >= 1 && c.rank >= 0 && c.rank < c.ranks, Code::bad_argument, "rank {} of {}: ranks are counted from 0", c.rank, c.ranks);
  Socket mine;
  if (rank_ == 0) {
    int pair[2];
    check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, Code::io, "rendezvous: the system gives no socket");
    mine = Socket(pair[0]);
    server_ = std::make_unique<Server>(c, Socket(pair[1]));
    check(reply_to(mine, c, c.wait).welcome, Code::io, "rendezvous: rank 0 does not hear itself");
  } else {
    mine = find_rank_0(c);
  }
  listener_ = std::make_unique<Listener>(std::move(mine), rank_, ranks_, c.silence);
  try {
    compare(c);
  } catch (const Error& e) {
    if (e.at.code != Code::interrupted) throw;  // the others know
    end(e.what());
    if (rank_ > 0 && !c.connected.empty()) throw Quiet(e.at, e.what());  // rank 0 was asked too, by the same Ctrl-C
    throw;
  }
}

Rendezvous::~Rendezvous() {
  if (!over_) end("it went away before it was done");
}

namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

Settings settings_in(const std::vector<std::string>& words) {  // behind the host and the build
  Settings s;
  for (std::size_t i = 2; i + 1 < words.size(); i += 2) s.emplace_back(words[i], words[i + 1]);
  return s;
}

struct Difference {
  std::string name, there, here;
};
std::vector<Difference> differences(const Settings& there, const Settings& here) {
  const auto value = [](const Settings& s, const std::string& name) -> std::string {
    const auto at = std::find_if(s.begin(), s.end(), [&](const auto& one) { return one.first == name; });
    return at == s.end() || at->second.empty() ? "not given" : at->second;
  };
  std::vector<Difference> all;
  for (const Settings& names : {here, there})
    for (const auto& [name, ignored] : names)
      if (const std::string a = value(there, name), b = value(here, name); a != b) all.push_back({name, a, b});
  return all;
}

}  // namespace

void Rendezvous::compare(const Coming& c) {
  std::vector<std::string> mine{host_id(), c.build};
  for (const auto& [name, value] : c.settings) mine.push_back(name), mine.push_back(value);
  const auto all = unpacked(listener_->take(bring(packed(mine)), "their settings", patience_, true));
  const auto first = unpacked(all[0]);
  const auto refuse = [&](const std::string& why) {
    over_ = true;  // every rank finds the same; rank 0 prints it
    if (rank_ == 0) throw Error(Code::bad_argument, why);
    throw Quiet(Code::bad_argument, why);
  };
  local_ranks_ = 0;
  for (int r = 0; r < ranks_; ++r) {
    const auto other = unpacked(all[std::size_t(r)]);
    if (other[0] == mine[0]) local_rank_ = r == rank_ ? local_ranks_ : local_rank_, ++local_ranks_;
    if (other[1] != first[1]) refuse(fmt::format("rank {} is another build of headroom ({}) than rank 0 ({})", r, other[1], first[1]));
    for (const auto& [name, there, here] : differences(settings_in(other), settings_in(first)))
      refuse(fmt::format("rank {} was given other settings than rank 0: {} is {} there, and {} on rank 0", r, name, there, here));
  }
}

std::uint64_t Rendezvous::bring(const std::string& mine) {
  listener_->send({Frame::Kind::bring, rank_, ++round_, mine});
  return round_;
}

std::vector<std::string> Rendezvous::take(std::uint64_t round, const char* what) {
  return unpacked(listener_->take(round, what, patience_));
}

std::vector<std::string> Rendezvous::collect(const std::string& mine, const char* what) { return take(bring(mine), what); }

bool Rendezvous::agree(bool mine) {
  const auto before = std::exchange(agreement_, bring(mine ? "1" : ""));
  if (before == 0) return false;
  const auto said = take(before, "their agreement");
  return std::any_of(said.begin(), said.end(), [](const std::string& s) { return !s.empty(); });
}

std::optional<std::string> Rendezvous::ended() const { return listener_->ended(); }
bool Rendezvous::speaks() const { return listener_->speaks(); }
void Rendezvous::check_alive(const char* call) const { listener_->check_alive(call); }
std::shared_ptr<void> Rendezvous::on_end(std::function<void()> f) { return listener_->on_end(std::move(f)); }

void Rendezvous::leave() {
  over_ = true;
  listener_->send({Frame::Kind::leave, rank_, 0, {}});
  if (listener_->wait_for_all_to_leave(patience_)) return;
  listener_->check_alive("");
}

bool Rendezvous::end(const std::string& why) noexcept {
  over_ = true;
  try {
    if (!listener_) return false;
    if (listener_->ended()) return true;
    listener_->send({Frame::Kind::end, rank_, 0, why});
    return listener_->wait_for_end(std::chrono::seconds(5));  // a machine with more ranks than cores takes its time
  } catch (...) { return false; }
}

}  // namespace headroom::dist
