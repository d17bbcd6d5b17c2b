// Calls to other ranks, and points where queues meet, as a sequence that tells no absolute place.
#pragma once
#include <vector>

#include "engine/forecast/trace.h"

namespace headroom::engine {

// What two equal stretches of calls and joints have in common. A step's place is told from the one before, a lane by its turn.
struct Link {
  enum class Kind : std::uint8_t { second_begins, second_ends, call, joint };
  Kind kind{};
  std::size_t ops_before = 0;  // since the link before
  int lane = 0, mark = 0;      // lane 0: the main queue
  dist::Joint::Kind joint{};
  std::size_t bytes = 0;
  double link_bytes = 0, ms = 0;
  friend bool operator==(const Link&, const Link&) = default;
};

struct Links {
  std::vector<Link> all;
  std::vector<const dist::Lane*> lanes{nullptr};
};

Links links_of(const Trace&);
void put_links(const std::vector<Link>&, const std::vector<const dist::Lane*>& lanes, Trace&);

}  // namespace headroom::engine
