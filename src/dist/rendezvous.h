// Rendezvous — how the ranks of one run find each other: a small store in rank 0's process, to which all connect. It carries
// words (addresses, hashes, the reason of an end), not tensors. It notices a lost rank: a process that dies closes its connection,
// a machine that dies stops sending its beat.
//
// Another job's processes may come to the port, and programs that are none of ours. They are refused, told so where they understand it,
// and change nothing: a greeting carries the job's name, has a deadline and is read without waiting. Once all ranks are in, the port
// is closed.
//
// Order of calls: construct (returns when all ranks have joined and agree on their numbers), collect / agree, in the same order on every rank;
// at the end leave(), or end(why). One thread calls; another, inside, listens.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/wire.h"

namespace headroom::dist {

std::string build_id();  // identifies the program or library with this code: equal only for equal builds

struct Coming {
  int rank = 0, ranks = 1;
  Address address;                                                // needed unless all connections are given
  std::string job{};                                              // the launcher's name of the job; strangers have another
  std::vector<Socket> connected{};                                // to rank 0, or from rank 0 to 1, 2, …, if it started the ranks itself
  std::vector<std::pair<std::string, std::string>> settings{};    // must be the same on every rank
  std::string build = build_id();                                 // must be the same, too
  std::chrono::milliseconds wait = std::chrono::seconds(60);      // for all ranks to join
  std::chrono::milliseconds silence = std::chrono::seconds(8);    // after which a machine counts as dead
  std::chrono::milliseconds patience = std::chrono::minutes(10);  // for a live rank that does not make the call
  std::function<std::string(int rank)> fate{};  // on rank 0: what became of a process that it started: "killed by signal 9"
};

class Rendezvous {
 public:
  explicit Rendezvous(Coming);  // throws an Error that names the missing rank, or the rank and setting that differ
  ~Rendezvous();                // calls end("…") unless leave or end was called
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int local_rank() const { return local_rank_; }    // among those on this machine
  int local_ranks() const { return local_ranks_; }  // on this machine
  bool one_machine() const { return local_ranks_ == ranks_; }

  // What every rank brought, by rank. `what` is for errors: "the NCCL id". Throws when a rank has ended.
  std::vector<std::string> collect(const std::string& mine, const char* what);
  // Whether any rank said yes one call ago: the same answer on every rank, without waiting while ranks are about equally far.
  bool agree(bool mine);

  std::optional<std::string> ended() const;       // "rank 2 ended: …", as soon as it is heard
  void check_alive(const char* call = "") const;  // throws it, after the name of the call that it ended
  std::chrono::milliseconds patience() const { return patience_; }
  bool speaks() const;  // whether this rank is the one to print it: the lowest that is left
  // Called by the listening thread, once, when a rank has ended: to end what this rank is waiting in. Until the value goes, which must be before
  // the Rendezvous does.
  [[nodiscard]] std::shared_ptr<void> on_end(std::function<void()>);

  void leave();                               // done: waits until all ranks are
  bool end(const std::string& why) noexcept;  // this rank failed. True when the others know

 private:
  class Server;
  class Listener;
  std::vector<std::string> take(std::uint64_t round, const char* what);
  std::uint64_t bring(const std::string& mine);
  void compare(const Coming&);

  int rank_, ranks_, local_rank_ = 0, local_ranks_ = 1;
  std::chrono::milliseconds patience_;
  bool over_ = false;
  std::uint64_t round_ = 0, agreement_ = 0;
  std::unique_ptr<Server> server_;  // on rank 0
  std::unique_ptr<Listener> listener_;
};

}  // namespace headroom::dist
