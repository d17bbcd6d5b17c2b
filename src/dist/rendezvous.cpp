#include "dist/rendezvous.h"

#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "base/text.h"
#include "dist/quiet.h"
#include "dist/rendezvous_listener.h"
#include "dist/rendezvous_server.h"

namespace headroom::dist {

namespace {

constexpr milliseconds knock_limit = std::chrono::seconds(2);

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
    stop_if_host_says();
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
  listener_ = std::make_unique<Listener>(std::move(mine), rank_, c.silence);
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
