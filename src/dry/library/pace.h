// Pace — how far the program would be on a machine with the card: its host by what is counted of it (host.h), at the rates of a measured one. A
// stream's and an event's `paced_ns` are the card on the same clock. Nothing in it is this machine's time, so what follows from it comes at the
// same call in every run.
#pragma once
#include <cstdint>

#include "dry/rates.h"

namespace headroom::dry {

std::uint64_t paced_ns();
void pace_counted(const HostWork&);
void pace_block();                     // PyTorch's allocator hands one out
void pace_called(double HostRate::*);  // a call that gives the card work, or waits
void pace_kernel(std::string_view name);
void pace_product(std::string_view name);
void pace_asked();                         // whether the card has done something
void pace_first_use();                     // of a kernel, which the card has to load
void pace_waited(std::uint64_t until_ns);  // the host waited for the card

}  // namespace headroom::dry
