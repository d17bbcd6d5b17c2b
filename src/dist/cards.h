// Cards — moves bytes between the GPUs of ranks, from and to memory that any allocator made, in the order of the caller's stream.
//
// A lane carries one call after another. It has slots, where the others' bytes arrive, and a shelf, from which the others fetch; both are
// staging memory that is made once. Every rank makes the same calls in the same order on the same lane. A call queues its work and returns.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/comm.h"
#include "dist/nccl.h"
#include "dist/rendezvous.h"

namespace headroom::dist {

class CardLane {
 public:
  struct Piece {
    char* at = nullptr;
    std::size_t bytes = 0;
  };
  using Pieces = std::function<Piece(int rank)>;

  virtual ~CardLane() = default;
  // Work between the two runs after what was done on this lane before, whichever stream that was on.
  virtual void begin(void* /*stream*/) {}
  virtual void end(void* /*stream*/) {}

  // from(j) goes to rank j; then slot i has what rank i sent. At most piece_bytes() to a rank; none to itself.
  virtual void send(const Pieces& from, void* stream) = 0;
  virtual char* slots() const = 0;                 // the last send's: rank 0's
  virtual std::size_t apart() const = 0;           // bytes from a rank's slot to the next one's
  virtual char* shelf() const { return nullptr; }  // where what the next give() gives may be already; null: there is no such place
  // `own` comes to to(this rank) of every other rank. to(r) of another rank says where its own comes here, and how long that is.
  virtual void give(const Piece& own, const Pieces& to, void* stream) = 0;
  virtual void spread(const Piece& whole, int root, void* stream) = 0;  // every rank gets root's
};

class Cards {
 public:
  // Every rank calls it. On one machine, where the GPUs see each other: copies from GPU to GPU. Else, or by Route::kernels: NCCL. An Error says
  // why neither works, with the same words on every rank, which may go on without. staging_bytes: on each rank, of all lanes together.
  static std::unique_ptr<Cards> join(Rendezvous&, int device, std::size_t staging_bytes, Route);
  static std::unique_ptr<Cards> over(Comm&, std::size_t staging_bytes);  // on host memory, for tests

  virtual ~Cards() = default;
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  virtual std::string route() const = 0;  // "copies from GPU to GPU", "NCCL 2.28.9"
  virtual bool on_gpu() const { return true; }
  virtual int lanes() const = 0;
  virtual CardLane& lane(int) = 0;
  std::size_t piece_bytes() const { return piece_bytes_; }  // a multiple of 256

 protected:
  Cards(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  std::size_t piece_bytes_ = 0;

 private:
  int rank_, ranks_;
};

}  // namespace headroom::dist
