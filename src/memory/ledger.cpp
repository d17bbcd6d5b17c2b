#include "memory/ledger.h"

#include <fmt/format.h>

#include <algorithm>

namespace headroom {

namespace {
template <class T>
void make_room(std::vector<T>& v, std::size_t count) {
  if (v.capacity() < count) v.reserve(std::max(count, 2 * v.capacity()));
}
}  // namespace

std::string_view name_of(Phase p) {
  constexpr std::array<std::string_view, phase_count> names = {"input",   "parameter", "gradient", "optimizer", "saved for backward",
                                                               "forward", "backward",  "workspace"};
  return names[std::size_t(p)];
}

std::string Name::full() const { return layer < 0 ? std::string(text) : fmt::format("block {} {}", layer, text); }

void Ledger::take(const Entry& e) {
  make_room(entries_, entries_.size() + 1);  // reserve first: a failure changes nothing, and give() never allocates
  make_room(live_, live_.size() + 1);
  make_room(events_, events_.size() + live_.size() + 2);
  const auto index = std::uint32_t(entries_.size());
  entries_.push_back(e);
  live_.push_back(index);
  live_bytes_ += e.taken;
  events_.push_back({index, true, live_bytes_});
  if (live_bytes_ > peak_bytes_) {
    peak_bytes_ = live_bytes_;
    peak_event_ = events_.size();
  }
}

void Ledger::give(std::size_t count) {
  for (; count > 0; --count) {
    const std::uint32_t index = live_.back();
    live_.pop_back();
    live_bytes_ -= entries_[index].taken;
    events_.push_back({index, false, live_bytes_});
  }
}

void Ledger::clear() { *this = Ledger(); }

void Ledger::start_peak() {
  peak_bytes_ = live_bytes_;
  peak_event_ = events_.size();
}

std::vector<Entry> Ledger::standing() const {
  std::vector<Entry> out;
  for (auto i : live_) out.push_back(entries_[i]);
  return out;
}

std::vector<Entry> Ledger::at_peak() const {
  std::vector<std::uint32_t> live;
  for (std::size_t e = 0; e < peak_event_; ++e) {
    if (events_[e].take)
      live.push_back(events_[e].entry);
    else
      live.pop_back();  // an arena is a stack: the newest entry ends first
  }
  std::vector<Entry> out;
  for (auto i : live) out.push_back(entries_[i]);
  return out;
}

}  // namespace headroom
