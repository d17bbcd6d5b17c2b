#include "instruments/profile/marks.h"

#include <chrono>

namespace headroom::profile {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Marks::begin(const Region& r) {
  marks_.push_back({r, open_, 0, 0, events(), 0});
  open_ = int(marks_.size()) - 1;
  if (echo_) echo_->begin(open_, r);
  marks_.back().begin_ns = now_ns();
}

void Marks::end() noexcept {
  Mark& m = marks_[std::size_t(open_)];
  m.end_ns = now_ns();
  m.events_end = events();
  if (echo_) echo_->end();
  open_ = m.parent;
}

double mark_cost_ns() {
  constexpr int times = 10000;
  Marks marks;
  const auto start = now_ns();
  for (int i = 0; i < times; ++i) { const Running running(&marks, {Region::Kind::op, "nothing", Phase::workspace, {}, {}}); }
  return double(now_ns() - start) / times;
}

}  // namespace headroom::profile
