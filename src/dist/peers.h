// Peers — exchanges and gathers between the GPUs of one machine by their copy engines: each rank writes into the others' memory, which it has
// mapped. No multiprocessor is taken from the kernels beside.
//
// A call is: I have come (a word for each peer, in host memory that all share), wait for all to have come, copy, I am done, wait for all to be
// done. A rank's own part is copied beside all that, on a stream of its own. The rank that waited for a word resets it, so a recorded call may be
// launched again and again.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "dist/comm.h"
#include "dist/rendezvous.h"
#include "dist/segment.h"
#include "gpu/event.h"
#include "gpu/peer.h"
#include "gpu/stream.h"

namespace headroom::dist {

class Peers {
 public:
  // None on several machines, and where one of the GPUs cannot see another's memory: the same answer on every rank.
  static std::unique_ptr<Peers> join(Rendezvous&, int device);
  // How ranks map each other's memory: by a file descriptor; by CUDA's names (IPC) where that does not work, which makes a context of each rank
  // on each other's GPU.
  enum class Way : std::uint8_t { descriptors, names };
  Way way() const { return way_; }
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  std::shared_ptr<void> take(std::size_t bytes);  // every rank takes the same number
  // Queues beside the main one, opened and closed by every rank in the same order: calls of two of them may be under way at once. Calls on
  // any other stream follow each other.
  void open_lane(void* stream);
  void close_lane(void* stream) noexcept;
  // Whether a call that fills `whole`, the same place on every rank, is for copy engines.
  bool serve(const void* whole, std::size_t bytes, void* stream);
  void exchange(const char* mine, char* theirs, std::size_t part, void* stream, Own = Own::copied);
  void gather(const char* part, char* whole, std::size_t bytes, void* stream);

  // Ranks meet on a queue that open_lane opened under this name and that makes no other calls: later work on `stream` runs when all ranks'
  // earlier work there is done.
  void meet(const void* lane, void* stream);
  char* there(int rank, const void* mine) const;  // the same place of rank's memory, mapped here

  void release() noexcept;  // another thread calls it when a rank is gone: nothing waits for that rank any more

  // Below, kernels are as fast: a call here takes some 10 µs at least. Beside other work the first is too late: a kernel that waits for
  // another rank holds a multiprocessor.
  static constexpr std::size_t from_bytes = 1 << 20, from_bytes_beside = 4 << 10;
  static constexpr std::size_t beside_from_bytes = 1
                                                   << 20;  // a part of its own that is copied beside the others; two more nodes of a graph

 private:
  struct Region {  // the same memory of all ranks
    std::shared_ptr<char> mine;
    std::size_t bytes;
    std::vector<std::shared_ptr<char>> theirs;  // by rank; empty for this one
  };
  enum class Step { come, done };
  struct Beside {  // where a lane's calls copy the rank's own part
    explicit Beside(int device) : stream(device) {}
    Stream stream;
    Event begins, ends;
  };

  Peers(Rendezvous&, int device, Way);
  Region share(std::size_t bytes);
  void map_by_descriptors(Region&);
  void map_by_names(Region&);
  const Region* region_of(const void* data) const;
  int lane_of(const void* stream) const;
  std::size_t word(int rank, Step, int of, int lane) const;
  void pretend_all_came();
  std::vector<Signal> said(Step, int lane) const;   // words for every other rank
  std::vector<Signal> heard(Step, int lane) const;  // words from every other rank, then reset
  void copy_own(char* to, const char* from, std::size_t bytes, int lane, void* stream);
  template <class From>
  void send(const From&, char* whole, std::size_t part, void* stream, Own = Own::copied);
  bool works();
  bool comes_back();

  Rendezvous& rendezvous_;
  int rank_, ranks_, device_;
  Way way_;
  Stream stream_;
  Segment words_;
  SeenByGpu words_of_gpu_;
  std::vector<std::shared_ptr<Region>> regions_;
  static constexpr int most_lanes = 8;
  std::array<void*, most_lanes> lanes_{};  // each has words of its own; the first is every other stream's
  std::array<std::unique_ptr<Beside>, most_lanes> beside_;
  std::array<Step, most_lanes> met_{};  // by which word a lane's ranks met last: the other one is free again
  std::atomic<bool> over_{false};
  std::thread releaser_;
};

}  // namespace headroom::dist
