// What a device exchanges with the memory of its host: how fast, and how much of it a program may pin. Beside device.h, which every
// kernel includes and which would have to be compiled with each of them again.
#pragma once
#include <cstdint>

#include "base/device.h"

namespace headroom {

// To or from pinned memory, one way, by the device's name: as it was measured, else of devices.json or a device's file; 0: not known.
double host_bytes_per_s(const Device&);
void set_host_bytes_per_s(const Device&, double measured);

// Of the host that this program runs on, what each of `programs` alike may pin: a fifth is left to everybody else. No limit is known for a
// device that is only described.
std::uint64_t host_memory_for(const Device&, int programs);

}  // namespace headroom
