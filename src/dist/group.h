// Group — this process among the ranks of its run: its number, the other ranks (started or found), the rendezvous, the Comm.
//
// Order of calls: construct before CUDA is touched, comm(…) once the device is known, work, leave(). An exception that passes by: end(why),
// and it is printed here only where the answer is true.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/device.h"
#include "dist/comm.h"
#include "dist/nccl.h"
#include "dist/ranks.h"
#include "dist/rendezvous.h"

namespace headroom::dist {

class Group {
 public:
  using Settings = std::vector<std::pair<std::string, std::string>>;
  // Starts the other ranks if no launcher did; returns when all have joined, with one build and equal settings. patience: see Coming.
  Group(const Seat&, Settings, std::optional<std::chrono::milliseconds> patience = {});
  ~Group();

  int rank() const { return rendezvous_->rank(); }
  int ranks() const { return rendezvous_->ranks(); }
  bool first() const { return rank() == 0; }  // the one that prints and keeps rows
  Rendezvous& rendezvous() { return *rendezvous_; }

  // Which of the `visible` GPUs is this rank's: its local rank's, or the only one, where its launcher shows each rank its own. Called by all.
  int device_index(int visible);
  // A backend that joins these ranks on this device: nccl on a GPU, on CPUs shared memory, or MPI where they are on several machines.
  std::unique_ptr<Comm> comm(const Device&, std::optional<Backend> asked = {}, Route = Route::automatic);

  // Memory that each rank may count on: ranks on the CPUs of one machine share it out, and all go by the one that has least. Called by all.
  std::uint64_t memory_of_each(const Device&, std::uint64_t taken = 0);
  std::uint64_t least(std::uint64_t mine, const char* what);  // the least of the ranks' values; every rank calls it
  std::uint64_t most(std::uint64_t mine, const char* what);

  bool stop(bool mine) { return rendezvous_->agree(mine); }  // Ctrl-C on any rank, heard by all in the same call
  void leave();
  bool end(const std::string& why) noexcept;  // whether this rank is the one to print it

 private:
  void check_devices(const Device&);
  [[noreturn]] void refuse(const std::string& why) const;  // for faults that all ranks find: rank 0 reports

  bool started_here_;

  std::unique_ptr<Others> others_;
  std::unique_ptr<Rendezvous> rendezvous_;
};

}  // namespace headroom::dist
