// DryComm — the forecast of one rank: what it would send, for how long, and in which order with other work. It moves nothing.
// Tensors come from a dry arena, so their data is their offset. Its log is also the layout that ranks compare before they record.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dist/comm.h"

namespace headroom::dist {

struct Sent {  // one call
  Call call;
  Name what;
  DType dtype;
  std::size_t bytes;                                      // bytes of the larger side
  std::size_t from = 0, to = 0;                           // offsets in the arena
  double link_bytes = 0;                                  // sent by this rank
  double link_ms = 0;                                     // 0 where the link is not known
  const Lane* lane = nullptr;                             // none: on the main queue
  std::size_t step = 0;                                   // ops that were noted before it
  friend bool operator==(const Sent& a, const Sent& b) {  // the same on every rank of a symmetric arena
    return a.call == b.call && a.dtype == b.dtype && a.bytes == b.bytes && a.from == b.from && a.to == b.to &&
           std::string_view(a.what.text) == b.what.text && a.what.layer == b.what.layer;
  }
};

struct Joint {  // a point where the main queue and a lane meet, or work that keeps a lane busy beside calls
  enum class Kind : std::uint8_t { follow, mark, wait, takes };
  Kind kind;
  const Lane* lane;
  int mark;
  std::size_t calls, step;  // calls of the log, and ops, that were before it
  double ms = 0;            // time of the lane for work that is no call
};

class DryComm final : public Comm {
 public:
  // link: bytes/s that a rank sends while it receives as much, 0 where not known. steps_so_far: of the walk, where one is kept.
  DryComm(int rank, int ranks, double link_bytes_per_s = 0, std::function<std::size_t()> steps_so_far = {});

  Backend backend() const override { return Backend::dry; }
  std::string route(Call) const override { return "forecast"; }
  void end(const std::string&) noexcept override {}

  std::unique_ptr<Lane> make_lane(int marks) override;

  const std::vector<Sent>& log() const { return log_; }
  const std::vector<Joint>& joints() const { return joints_; }
  double link_bytes() const;
  double link_ms() const;

 protected:
  void do_exchange(const Tensor& mine, const Tensor& theirs, void* stream, Own) override;
  void do_gather(const Tensor& part, const Tensor& whole, void* stream) override;
  void do_broadcast(const Tensor& whole, int root, void* stream) override;
  void do_barrier(void* stream) override;

 private:
  class DryLane;
  std::size_t step() const { return steps_so_far_ ? steps_so_far_() : 0; }
  void note(Call, const Tensor& larger, const void* from, const void* to, void* stream);

  double link_bytes_per_s_;
  std::function<std::size_t()> steps_so_far_;
  std::vector<Sent> log_;
  std::vector<Joint> joints_;
};

// How long the main queue stands still for the link, where op i of the walk takes step_ms[i]: calls on the main queue wholly, those on a lane
// as far as a wait comes before they are done. Lanes run beside each other, and nothing slows anything else down. A call takes its link's time, and
// beside it what `begins` says, if it is not null.
struct Exposed {
  double link_ms = 0, other_ms = 0;  // time of lanes that carry calls, and of others
};
Exposed exposed_ms(std::span<const Sent>, std::span<const Joint>, std::span<const double> step_ms, double (*begins)(const Sent&) = nullptr);

std::string in_words(const Sent&);  // "gather of block 3 weights, 4096 bytes of bf16 from 0 to 8192"

// A hash of the first n calls for every n in 1 … log.size(): two ranks' lists differ first where their calls do.
std::vector<std::uint64_t> hashes(const std::vector<Sent>& log);

}  // namespace headroom::dist
