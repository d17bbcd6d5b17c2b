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

// Of the host that this program runs on, what each of `programs` alike may pin: a fifth is left to everybody else. No limit is known for a
// device that is only described.
std::uint64_t host_memory_for(const Device&, int programs);

// What a file of /proc says after the colon of the first line that begins so; "" where none does.
std::string said_in(const char* file, std::string_view head);

}  // namespace headroom
