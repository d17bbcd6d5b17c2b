// Where the program is: the Python stack of the calling thread, and the scope that an observer gave it.
//
// PyTorch reports its blocks with its allocator's lock held and Python's lock let go. Waiting for Python's lock there could wait for ever, so
// a block waits instead: it is recorded by the thread's next call that holds no lock of the allocator, with the stack of that moment,
// which is still the stack of the same operation. Where the observer told how to read frames without that lock (frames.h), nothing waits.
#pragma once
#include <string_view>

#include "dry/record.h"

namespace headroom::dry {

CallSite here();  // as it was last read on this thread
CallSite look();  // reads it now; takes Python's lock for a moment
std::uint32_t scope();
std::uint32_t set_scope(std::uint32_t);
void set_frames(int most);  // 0: stacks are not read

std::uint32_t number_of_object(const void* object);  // a called module's; 0: it was not seen
void phase_told(std::string_view phase);             // by the observer; "": forward and evaluation are marked here, by what a block shows

void wait_for_place(const BlockChange&);  // within the allocator
void settle();                            // outside: records the blocks that wait

}  // namespace headroom::dry
