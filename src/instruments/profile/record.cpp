#include "instruments/profile/record.h"

#include <algorithm>

namespace headroom::profile {

void Recording::step(const std::function<void()>& call) {
  if (steps_.empty()) origin_ns_ = now_ns();
  first_event_ = ledger_ ? ledger_->events().size() : 0;
  const auto start = now_ns();
  call();
  steps_.push_back({start - origin_ns_, now_ns() - origin_ns_});
}

Timeline Recording::timeline() const {
  Timeline t;
  t.marks = marks_.all();
  t.steps = steps_;
  t.slices = host_slices(t.marks, steps_, origin_ns_);
  if (!ledger_ || steps_.empty()) return t;
  std::vector<std::pair<std::uint32_t, std::int64_t>> when;
  for (const Mark& m : t.marks) {
    if (m.begin_ns - origin_ns_ < steps_.back().start_ns) continue;
    when.emplace_back(m.events_begin, m.begin_ns - origin_ns_);
    when.emplace_back(m.events_end, m.end_ns - origin_ns_);
  }
  when.emplace_back(std::uint32_t(ledger_->events().size()), steps_.back().end_ns);
  std::sort(when.begin(), when.end());
  t.memory = memory_of(*ledger_, first_event_, when);
  return t;
}

}  // namespace headroom::profile
