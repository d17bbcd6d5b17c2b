// Replaces the CUDA files in a build without CUDA: there is no device to record.
#include "instruments/profile/activity.h"
#include "instruments/profile/counters.h"

namespace headroom::profile {

std::string start_activity(const Wanted&, void (*)(const Activity&), void (*)()) { return "this build has no CUDA"; }
void flush_activity(bool) {}
void stop_activity() {}
void push_link(std::uint64_t) {}
void pop_link() {}
int mark_of_node(std::uint64_t) { return -1; }
void* open_cupti(std::string* why) {
  *why = "this build has no CUDA";
  return nullptr;
}

Counted count_tensor_work(int, const std::function<void()>&, const std::function<void()>&) { return {0, 0, 0, "this build has no CUDA"}; }

}  // namespace headroom::profile
