// Which of several ways to do the same work takes the least time on a card that does it over and over.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace headroom {

namespace fastest {
constexpr int singles = 4;             // runs of each way alone, after one that loads it
constexpr float clearly = 0.98f;       // a later way must be faster by more than the noise: alone,
constexpr float clearly_busy = 0.99f;  // and on a busy card
constexpr float long_ms = 1;           // what is shorter is judged alone: in a row its operands are in L2 as they are not in a step
constexpr float near = 1.1f;           // ways that are slower alone than this times the fastest are not tried on a busy card
constexpr float busy_ms = 20;          // of one way, before the next has its turn: a card takes some ms to change its clock
constexpr int rounds = 2;              // that count, after one that makes the card busy
}  // namespace fastest

// time(way, runs): milliseconds of one run, of so many in a row; infinity where the way does not work.
// A card that may take no more power slows its clock, most for the way that takes the most energy. Alone that does not show: so ways that take long
// are also timed in turns while the card is busy (bench/lab/step.md has what that gave).
template <class Time>
std::size_t fastest_way(std::size_t ways, Time&& time) {
  const auto least = [&](const std::vector<float>& ms, float clearly) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < ms.size(); ++i)
      if (ms[i] < ms[best] * clearly) best = i;
    return best;
  };
  std::vector<float> alone(ways, std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < ways; ++i) {
    if (!std::isfinite(time(i, 1))) continue;
    for (int run = 0; run < fastest::singles; ++run) alone[i] = std::min(alone[i], time(i, 1));
  }
  const float shortest = *std::min_element(alone.begin(), alone.end());
  if (shortest < fastest::long_ms || !std::isfinite(shortest)) return least(alone, fastest::clearly);

  std::vector<float> busy(ways, std::numeric_limits<float>::infinity());
  const int runs = int(std::ceil(fastest::busy_ms / shortest));
  for (int round = 0; round <= fastest::rounds; ++round)
    for (std::size_t i = 0; i < ways; ++i) {
      if (alone[i] > shortest * fastest::near) continue;
      const float ms = time(i, runs);
      if (round > 0) busy[i] = round == 1 ? ms : busy[i] + ms;
    }
  return least(busy, fastest::clearly_busy);
}

}  // namespace headroom
