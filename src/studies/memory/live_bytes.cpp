#include "studies/memory/live_bytes.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace headroom::studies {

namespace {

constexpr std::size_t most_moments = 500;

std::string what_happens(const Entry& e, bool take) {
  return fmt::format("{} {} {} {}, {} ({})", take ? "+" : "−", e.name.full(), shape_text(e.shape), name_of(e.dtype),
                     bytes_in_words(double(e.taken)), name_of(e.phase));
}

}  // namespace

Chart live_bytes_chart(const Account& account, const std::function<std::string(std::size_t)>& what, std::uint64_t memory_bytes) {
  Chart c{"Live bytes over the step", "allocation number", "", Unit::bytes, false, {}, Chart::Kind::areas};
  for (const Phase p : stacking) c.series.push_back({std::string(name_of(p)), {}});
  const auto shown = moments_worth_showing(account, most_moments);
  std::array<std::int64_t, phase_count> live = account.at_start;
  auto next = shown.begin();
  bool forward = false, backward = false;  // begun: the gradient of the residual stream is taken first of all, under everything
  for (std::size_t i = 0; i < account.timeline.size() && next != shown.end(); ++i) {
    const Moment& m = account.timeline[i];
    live[std::size_t(m.phase)] += m.change;
    forward = forward || (m.change > 0 && (m.phase == Phase::forward || m.phase == Phase::saved));
    if (forward && m.change > 0 && m.phase == Phase::backward && !std::exchange(backward, true))
      c.marks.push_back({"backward", double(i), true});
    if (i != *next) continue;
    ++next;
    for (std::size_t s = 0; s < stacking.size(); ++s) {
      c.series[s].points.emplace_back(double(i), double(live[std::size_t(stacking[s])]));
      c.series[s].names.push_back(m.phase == stacking[s] ? what(i) : "");
    }
  }
  std::erase_if(c.series, [](const Chart::Series& s) {
    return std::all_of(s.points.begin(), s.points.end(), [](const auto& p) { return p.second == 0; });
  });
  c.marks.push_back({fmt::format("peak {}", bytes_in_words(double(account.peak_bytes))), double(account.peak_moment), true});
  if (memory_bytes > 0 && double(memory_bytes) < 3 * double(account.peak_bytes))
    c.marks.push_back({fmt::format("memory {}", bytes_in_words(double(memory_bytes))), double(memory_bytes)});
  return c;
}

Chart live_bytes_chart(const engine::Forecast& f, std::uint64_t memory_bytes) {
  Account account;
  account.peak_bytes = f.peak_bytes;
  for (const auto& e : f.events) {
    const Entry& entry = f.entries[e.entry];
    account.timeline.push_back({"", e.live, entry.phase, (e.take ? 1 : -1) * std::int64_t(entry.taken)});
    if (e.live == f.peak_bytes) account.peak_moment = account.timeline.size() - 1;
  }
  return live_bytes_chart(
      account, [&](std::size_t i) { return what_happens(f.entries[f.events[i].entry], f.events[i].take); }, memory_bytes);
}

}  // namespace headroom::studies
