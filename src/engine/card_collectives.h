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
  explicit CardCollectives(std::unique_ptr<dist::Cards>, int device);

  void broadcast(void* data, std::int64_t count, DType, int root, void* stream);
  void all_reduce(void* data, std::int64_t count, DType, int divisor, void* stream);  // in place
  void all_gather(const void* part, void* whole, std::int64_t count, DType, void* stream);
  void reduce_scatter(const void* whole, void* part, std::int64_t count, DType, int divisor, void* stream);
  void exchange(const void* mine, void* theirs, std::int64_t count, DType, void* stream);
  const dist::Cards& cards() const { return *cards_; }

 private:
  template <class Body>
  void in_pieces(std::int64_t count, DType, std::int64_t most, void* stream, Body&& body);
  void add(const char* own, dist::CardLane&, std::int64_t count, DType, int divisor, char* to, char* also, void* stream) const;
  void copy(char* to, const char* from, std::size_t bytes, void* stream) const;

  std::unique_ptr<dist::Cards> cards_;
  std::vector<std::unique_ptr<UrgentStream>> streams_;  // of lanes that share a call; a lane that has a call alone works on the caller's
  std::vector<Event> events_;
  int next_lane_ = 0;
};

}  // namespace headroom
