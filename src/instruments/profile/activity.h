// Activity — what a GPU did, as CUPTI reports it, without CUPTI's types. One listener per process; CUPTI is found at run time.
#pragma once
#include <cstdint>
#include <string>

namespace headroom::profile {

struct Activity {
  enum class Kind : std::uint8_t {
    kernel,
    copy,
    fill,
    take,         // memory allocated …
    give,         // … and freed
    range_begin,  // NVTX
    range_end,
    launch,  // the host call that launched a kernel, a copy or a graph
    link,    // id is the mark that was open when the call `correlation` was made
    overhead
  };
  Kind kind;
  std::int64_t start_ns = 0, end_ns = 0;  // on the host's steady clock
  std::uint32_t device = 0, stream = 0, correlation = 0, thread = 0;
  std::uint64_t id = 0;  // kernel: its node in a graph, 0 outside one; range: which; link: the mark; take and give: the address
  std::uint64_t bytes = 0;
  const char* name = nullptr;  // valid during the call
};

struct Wanted {
  bool launches = false;  // record launching host calls, to find the range of a kernel
  bool ranges = false;
  bool memory = false;
  bool links = false;
};

// Returns "", or a sentence why there will be no activity. `heard` is called on CUPTI's thread, `flushed` at the end of a buffer.
std::string start_activity(const Wanted&, void (*heard)(const Activity&), void (*flushed)());
void flush_activity(bool wait_for_all);  // otherwise only what is complete
void stop_activity();

// The region of all work that this thread launches from now on; also of the nodes of a graph being recorded.
void push_link(std::uint64_t mark);
void pop_link();
// Which mark was open when a graph's node was recorded; −1 when none.
int mark_of_node(std::uint64_t node);

void* open_cupti(std::string* why);  // a handle of the library; null and why

}  // namespace headroom::profile
