// What records and counts on a card, as the program has it: CUPTI's calls are in libheadroom_cuda.so.
#include "gpu/beside.h"
#include "instruments/profile/activity.h"
#include "instruments/profile/counters.h"

namespace headroom::profile {

using beside::call;

std::string start_activity(const Wanted& wanted, void (*heard)(const Activity&), void (*flushed)()) {
  return beside::here() ? call<start_activity>(wanted, heard, flushed) : beside::why_absent();
}
void flush_activity(bool wait_for_all) { call<flush_activity>(wait_for_all); }
void stop_activity() { call<stop_activity>(); }
void push_link(std::uint64_t mark) { call<push_link>(mark); }
void pop_link() { call<pop_link>(); }
int mark_of_node(std::uint64_t node) { return call<mark_of_node>(node); }

Counted count_tensor_work(int device, const std::function<void()>& work, const std::function<void()>& wait) {
  return beside::here() ? call<count_tensor_work>(device, work, wait) : Counted{0, 0, 0, beside::why_absent()};
}

}  // namespace headroom::profile
