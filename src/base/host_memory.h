// The memory of this machine, and how much of it a program may pin for a card.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/device.h"

namespace headroom {

struct HostMemory {
  std::uint64_t total, available;
};
HostMemory host_memory();  // a control group may give this program less than the machine has

// What each of `programs` equal programs may pin on this host; a fifth stays free for other programs. A device that is only
// described has no known limit.
std::uint64_t host_memory_for(const Device&, int programs);

// The text after the colon of the first line of a /proc file that begins so; "" if none does.
std::string said_in(const char* file, std::string_view head);

}  // namespace headroom
