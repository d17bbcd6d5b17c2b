// Collectives on memory of the ranks' GPUs: Cards move bytes, a kernel adds them, FP32 and in the order of ranks, rounded once: the bits of
// collectives.h on host memory. A call runs after what its stream was given before, and later work of the stream runs after it. The host waits
// for nothing.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/tensor.h"
#include "dist/cards.h"
#include "gpu/event.h"
#include "gpu/urgent_stream.h"

namespace headroom {

class CardCollectives {
 public:
  struct Queue {
    void* stream = nullptr;
    std::int64_t ticket = 0;  // a begun call's: it runs after begin(), and later work of the stream runs beside it, until wait()
  };
  explicit CardCollectives(std::unique_ptr<dist::Cards>, int device);

  void broadcast(void* data, std::int64_t count, DType, int root, Queue);
  void all_reduce(void* data, std::int64_t count, DType, int divisor, Queue);  // in place
  void all_gather(const void* part, void* whole, std::int64_t count, DType, Queue);
  void reduce_scatter(const void* whole, void* part, std::int64_t count, DType, int divisor, Queue);
  void exchange(const void* mine, void* theirs, std::int64_t count, DType, Queue);
  const dist::Cards& cards() const { return *cards_; }

  // Tickets count from 1, and fewer than `kept` of them are between begin() and the call itself, which another thread may make.
  static constexpr std::int64_t kept = 256;
  void begin(std::int64_t ticket, void* stream) const;  // the call runs after what is on the stream now
  void wait(std::int64_t ticket, void* stream) const;   // later work of the stream runs after the call, which was made
  bool done(std::int64_t ticket) const;

 private:
  template <class Body>
  void in_pieces(std::int64_t count, DType, std::int64_t most, Queue, Body&& body);
  void add(const char* own, dist::CardLane&, std::int64_t count, DType, int divisor, char* to, char* also, void* stream) const;
  void copy(char* to, const char* from, std::size_t bytes, void* stream) const;

  std::unique_ptr<dist::Cards> cards_;
  std::vector<std::unique_ptr<UrgentStream>> streams_;  // for lanes that share a call; a lane that has a call alone works on the caller's
  // One for each of the last begun calls, and at 0 for a call that was not begun. An older call's end is a later one's, which follows on its lane.
  std::vector<Event> begins_, ends_;
  static std::int64_t place_of(std::int64_t ticket) { return ticket == 0 ? 0 : 1 + ticket % kept; }
  const Event& begin_of(std::int64_t ticket) const { return begins_[std::size_t(place_of(ticket))]; }
  const Event& end_of(std::int64_t ticket, int lane) const { return ends_[std::size_t(place_of(ticket) * cards_->lanes() + lane)]; }
  int next_lane_ = 0;
};

}  // namespace headroom
