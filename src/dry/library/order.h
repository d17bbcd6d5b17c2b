// What an order of calls proves to be done, whatever the card's speed: a host that waited for a stream knows what was before, in that stream and
// in those that it waited for. PyTorch's allocator asks whether an event is done before it gives back what a second stream used.
#pragma once
#include "dry/library/work.h"

namespace headroom::dry {

void order_recorded(const Event&, const Stream&);
void order_stream_waits(const Stream&, const Event&);
void order_host_waits(const Event&);
void order_host_waits(const Stream&);
void order_host_waits_for_device(int device);
void order_forgets(const Event&);
bool order_proves(const Event&);  // that it is done; an event that was never recorded is

// Whether the allocator, which asks, is told that it is done. Says once in the record that the card's speed decides it.
bool done_for_allocator(const Event&, bool by_the_pace);

enum class When : std::uint8_t { by_the_pace, at_once, late };
When when_asked();         // by the settings
void say_speed_decides();  // once in the record

}  // namespace headroom::dry
