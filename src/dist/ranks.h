// Which rank this process is, by its command line or its launcher; starts the other ranks if no launcher did.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "dist/wire.h"

namespace headroom::dist {

constexpr const char* how_to_meet = "give --rendezvous HOST:PORT, a free port on rank 0's machine";

struct RanksAsked {
  int rank = -1;                   // --rank; −1: not given
  int ranks = 0;                   // --ranks or --gpus; 0: not given
  std::string rendezvous{};        // --rendezvous host:port
  const char* option = "--ranks";  // the option as written
};

struct Seat {
  int rank = 0, ranks = 1;
  std::string launcher{};     // the source of these numbers: "--rank", "torchrun", "Open MPI", "PMI", "SLURM"; empty: none
  std::string job{};          // its launcher's name for it, equal on all its ranks
  Address address{};          // no host: to be asked of MPI (mpi.h)
  bool start_others = false;  // no launcher started them: this process is rank 0 and does
  int inherited = -1;         // the connection that rank 0 gave to a rank that it started
};

// In this order: --rank, rank 0's own word to those it starts, torchrun, Open MPI, PMI (MPICH, Intel MPI), SLURM. A launcher of one rank is
// passed over. An Error where two of them contradict each other, or where ranks cannot find each other.
Seat find_seat(const RanksAsked&, const std::function<const char*(const char*)>& variable);
Seat find_seat(const RanksAsked&);  // reads this process's environment

std::string first_host(const std::string& slurm_list);  // "node[07-09,12],other" begins with "node07"

// The processes that this one started.
class Others {
 public:
  Others() = default;
  explicit Others(int ranks);  // runs this program again, with the same words, ranks − 1 times
  ~Others();                   // waits for them; kills those that do not end within ten seconds
  Others(const Others&) = delete;
  Others& operator=(const Others&) = delete;

  std::vector<Socket> connections() { return std::move(connections_); }  // to ranks 1, 2, …
  std::string fate(int rank);                                            // how a rank ended whose connection is closed

 private:
  std::vector<int> pids_;  // 0: reaped
  std::vector<std::string> fates_;
  std::vector<Socket> connections_;
  bool reap(std::size_t i);
};

}  // namespace headroom::dist
