// Which of several ways to do the same work takes the least time on a card that does it over and over.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace headroom {

namespace fastest {
constexpr int singles = 4;              // runs of each way alone, after one that loads it
constexpr float clearly = 0.98f;        // a later way must be faster by more than the noise: alone,
constexpr float clearly_long = 0.995f;  // and in a long row
constexpr float near = 1.08f;           // ways that are slower alone than this times the fastest are not tried in a long row
constexpr std::size_t tried_long = 6;   // nor are more than so many
constexpr float row_ms = 60;            // a card takes some tens of ms until its clock is that of the work
}  // namespace fastest

// The one of `some` whose time is least; one that comes later must take less than `clearly` of the time of those before.
inline std::size_t least_of(const std::vector<std::size_t>& some, const std::vector<float>& ms, float clearly) {
  std::size_t best = some.front();
  for (const std::size_t i : some)
    if (ms[i] < ms[best] * clearly) best = i;
  return best;
}

// time(way, runs): milliseconds of one run, of so many in a row; infinity where the way does not work.
// A card that may take no more power slows its clock, most for the way that takes the most energy. A single run does not show that, nor do ways
// that take turns every few milliseconds: they share one clock. So each of the best has two long rows for itself, of which the second counts
// (bench/lab/step.md has what that gave), or none where !in_long_rows. Alone all ways take turns, because the clock of an idle card rises with work.
template <class Time>
std::size_t fastest_way(std::size_t ways, Time&& time, bool in_long_rows) {
  std::vector<std::size_t> working;
  for (std::size_t i = 0; i < ways; ++i)
    if (std::isfinite(time(i, 1))) working.push_back(i);
  if (working.empty()) return 0;

  std::vector<float> ms(ways, std::numeric_limits<float>::infinity());
  for (int run = 0; run < fastest::singles; ++run)
    for (const std::size_t i : working) ms[i] = std::min(ms[i], time(i, 1));
  const float shortest = ms[least_of(working, ms, 1)];
  if (working.size() == 1 || !in_long_rows) return least_of(working, ms, fastest::clearly);

  std::stable_sort(working.begin(), working.end(), [&](std::size_t i, std::size_t j) { return ms[i] < ms[j]; });
  working.resize(std::min(working.size(), fastest::tried_long));
  std::erase_if(working, [&](std::size_t i) { return ms[i] > shortest * fastest::near; });
  std::sort(working.begin(), working.end());
  for (const std::size_t i : working) {
    const int runs = int(std::ceil(fastest::row_ms / shortest));
    time(i, runs);
    ms[i] = time(i, runs);
  }
  return least_of(working, ms, fastest::clearly_long);
}

}  // namespace headroom
