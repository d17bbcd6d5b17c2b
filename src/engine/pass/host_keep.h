// HostKeep — what some blocks keep waits in pinned host memory between forward and backward. Such a block keeps its tensors in one of two
// rooms on the device, which those blocks take in turn; a copy engine brings a room's bytes to the host while the blocks after it run
// forward, and back while the blocks after it run backward. The last two of them need no copy. On a CPU the copies are plain ones.
//
// Order of calls in a micro-batch: begin; for each such block, upwards, take, its forward, leave; downwards, come_back, its backward, done.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "dist/comm.h"
#include "gpu/staging.h"
#include "memory/block.h"
#include "ops/op.h"

namespace headroom::engine {

class HostKeep {
 public:
  static constexpr int rooms = 2;  // on the device
  // kept_bytes: of each such block, in the arena's rounding. lane: of a mark for each room. host_bytes_per_s: 0 where not known.
  HostKeep(std::vector<int> blocks, std::vector<std::size_t> kept_bytes, Context&, std::unique_ptr<dist::Lane> lane,
           double host_bytes_per_s);
  ~HostKeep();

  bool has(int block) const { return std::size_t(block) < place_.size() && place_[std::size_t(block)] >= 0; }
  std::size_t host_bytes() const { return host_.used(); }  // taken by the blocks' places on the host
  double moved_bytes() const { return moved_bytes_; }      // moved by all calls so far
  double moved_ms() const { return rate_ > 0 ? 1e3 * moved_bytes_ / rate_ : 0; }

  void begin();             // makes the rooms, in the caller's scope
  Context take(int block);  // its arena is the block's room; valid until the next take
  void leave(int block);    // its tensors are whole
  void come_back(int block);
  void done(int block);  // its room is free

 private:
  bool travels(int place) const { return place + rooms < int(blocks_.size()); }
  Tensor part_of(int place) const;  // the room's bytes that a place takes
  void copy(int place, bool to_host);

  std::vector<int> blocks_, place_;  // place_: of a block among them, or −1
  std::vector<std::size_t> bytes_;
  Context& ctx_;
  std::unique_ptr<dist::Lane> lane_;
  double rate_, moved_bytes_ = 0;
  std::optional<headroom::Block> plain_;  // not a decoder's block
  std::optional<Pinned> pinned_;
  Arena host_;
  std::vector<Tensor> there_;  // places of the blocks that are copied
  Tensor rooms_;
  std::optional<Arena> room_;
};

}  // namespace headroom::engine
