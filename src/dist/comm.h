// Comm — moves bytes between ranks, and nothing else. Ops compute the sums, in rank order, in FP32, so they have
// the same bits for any number of ranks and any backend, and a backend stays small.
//
// Order of calls: every rank makes the same calls in the same order with the same sizes. A call puts its work on `stream` (a
// cudaStream_t) and returns; nothing is allocated and the host does not wait, so calls can be captured into a graph. On a CPU, where
// stream is null, a call returns when it is done: it waits for the other ranks, with a time limit.
// A rank that fails ends the others: their call throws, and the error says which rank it was and why.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/described.h"
#include "base/tensor.h"
#include "memory/ledger.h"

namespace headroom::dist {

enum class Call : std::uint8_t { exchange, gather, broadcast, barrier };
enum class Own : std::uint8_t {
  copied,
  left
};  // whether an exchange brings what a rank has for itself; left: that place is not read later
enum class Backend : std::uint8_t { dry, threads, shared, mpi, nccl };

// Bytes that one rank sends in a call whose larger tensor has `bytes`: `mine` of an exchange, `whole` of a gather.
double sent_bytes(Call, double bytes, int ranks);

// A second queue beside the main one, so that calls run while work goes on: on a GPU a stream, and under capture a second branch of the
// same graph; on a CPU, whose calls are done when they return, nothing.
//
// Order of calls: follow(main), calls on stream(), mark(i); later wait(i, main). Before a recording ends, main has waited for all.
class Lane {
 public:
  virtual ~Lane() = default;
  virtual void* stream() const { return nullptr; }
  virtual void follow(void* /*main*/) {}              // later work on this lane runs after the work that main has now
  virtual void mark(int /*mark*/) {}                  // marks the point after the work queued so far; a mark may be used again
  virtual void wait(int /*mark*/, void* /*main*/) {}  // later work on main runs after the marked point
  virtual void busy_for(double /*ms*/) {}             // forecasts only: a copy that is no call occupies the lane this long
};

std::unique_ptr<Lane> lane_of_gpu(int device, int marks);  // the lane has a stream of its own

class Comm {
 public:
  Comm(int rank, int ranks);  // checks that rank is one of 0 … ranks − 1
  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  virtual Backend backend() const = 0;
  virtual std::string route(Call) const = 0;  // the transport of such a call: "copies", "kernels", "copy engines"

  // Tensors are contiguous. Those of exchange do not overlap; of gather, `part` may already be at its place in `whole`.
  // Part j of mine goes to rank j; part i of theirs came from rank i.
  void exchange(const Tensor& mine, const Tensor& theirs, void* stream, Own = Own::copied);
  void gather(const Tensor& part, const Tensor& whole, void* stream);  // part i of whole came from rank i
  void broadcast(const Tensor& whole, int root, void* stream);         // every rank gets root's values
  void barrier(void* stream);                                          // later work runs when every rank has called it

  // What the next calls carry, for the errors and for the forecast: "block 3 gradients". Costs nothing.
  void carries(Name what) { what_ = what; }
  Name carried() const { return what_; }

  virtual std::unique_ptr<Lane> make_lane(int marks);

  // Memory for the tensors of calls: every rank asks for the same size, and lays it out alike. On a GPU it is registered with the others, so ask
  // before anything is captured, and let go of it after every graph that uses it and before the Comm.
  virtual std::shared_ptr<void> take(std::size_t bytes);
  virtual std::size_t own_bytes() const { return 0; }     // the backend's own device memory, measured
  virtual void check_alive() {}                           // throws the reason if another rank has ended; runs on the host, never waits
  virtual void end(const std::string& why) noexcept = 0;  // this rank ends: the others' calls throw why. Called once, before leaving

 protected:
  virtual void do_exchange(const Tensor& mine, const Tensor& theirs, void* stream, Own) = 0;  // may copy what could be left
  virtual void do_gather(const Tensor& part, const Tensor& whole, void* stream) = 0;
  virtual void do_broadcast(const Tensor& whole, int root, void* stream) = 0;
  virtual void do_barrier(void* stream) = 0;

 private:
  int rank_, ranks_;
  Name what_{""};
};

}  // namespace headroom::dist

namespace headroom {
template <>
inline constexpr auto names_of<dist::Call> = names<dist::Call>("exchange", "gather", "broadcast", "barrier");
template <>
inline constexpr auto names_of<dist::Backend> = names<dist::Backend>("dry", "threads", "shared", "mpi", "nccl");
}  // namespace headroom
