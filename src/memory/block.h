// A block of host memory. An arena with memory uses one.
#pragma once
#include "memory/owned_bytes.h"

namespace headroom {

void* host_bytes(std::size_t bytes);  // throws Error (out_of_memory)
void give_back_host_bytes(void* data, std::size_t bytes);

using Block = OwnedBytes<host_bytes, give_back_host_bytes>;

}  // namespace headroom
