#include "studies/memory/live_bytes.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "studies/memory/account.h"

namespace headroom::studies {

namespace {

constexpr std::size_t most_moments = 500;

std::string what_happens(const Entry& e, bool take) {
  return fmt::format("{} {} {} {}, {} ({})", take ? "+" : "−", e.name.full(), shape_text(e.shape), name_of(e.dtype),
                     bytes_in_words(double(e.taken)), name_of(e.phase));
}

}  // namespace

Chart live_bytes_chart(const engine::Forecast& f, std::uint64_t memory_bytes) {
  Account account;
  for (const auto& e : f.events) {
    account.timeline.push_back({f.entries[e.entry].name.text, e.live});
    if (e.live == f.peak_bytes) account.peak_moment = account.timeline.size() - 1;
  }
  Chart c{"Live bytes over the step", "allocation number", "", Unit::bytes, false, {}, Chart::Kind::areas};
  for (const Phase p : stacking) c.series.push_back({std::string(name_of(p)), {}});
  const auto shown = moments_worth_showing(account, most_moments);
  std::array<std::int64_t, phase_count> live{};
  auto next = shown.begin();
  bool forward = false, backward = false;  // begun: the gradient of the residual stream is taken first of all, under everything
  for (std::size_t i = 0; i < f.events.size() && next != shown.end(); ++i) {
    const auto& event = f.events[i];
    const Entry& e = f.entries[event.entry];
    live[std::size_t(e.phase)] += (event.take ? 1 : -1) * std::int64_t(e.taken);
    forward = forward || (event.take && (e.phase == Phase::forward || e.phase == Phase::saved));
    if (forward && event.take && e.phase == Phase::backward && !std::exchange(backward, true))
      c.marks.push_back({"backward", double(i), true});
    if (i != *next) continue;
    ++next;
    for (std::size_t s = 0; s < stacking.size(); ++s) {
      c.series[s].points.emplace_back(double(i), double(live[std::size_t(stacking[s])]));
      c.series[s].names.push_back(e.phase == stacking[s] ? what_happens(e, event.take) : "");
    }
  }
  std::erase_if(c.series, [](const Chart::Series& s) {
    return std::all_of(s.points.begin(), s.points.end(), [](const auto& p) { return p.second == 0; });
  });
  c.marks.push_back({fmt::format("peak {}", bytes_in_words(double(f.peak_bytes))), double(account.peak_moment), true});
  if (memory_bytes > 0 && double(memory_bytes) < 3 * double(f.peak_bytes))
    c.marks.push_back({fmt::format("memory {}", bytes_in_words(double(memory_bytes))), double(memory_bytes)});
  return c;
}

}  // namespace headroom::studies
