// Every allocation calls fault::point(). A test arms it, and the n-th call then fails as if memory had run out.
#pragma once
#include <atomic>

#include "base/error.h"

namespace headroom::fault {

inline std::atomic<long> countdown{0};  // 0: not armed

inline void arm(long passages) { countdown = passages; }
inline void disarm() { countdown = 0; }

inline void point() {
  if (countdown.load(std::memory_order_relaxed) > 0 && countdown.fetch_sub(1) == 1)
    throw Error(Code::out_of_memory, "out of memory: this allocation was made to fail by a test");
}

}  // namespace headroom::fault
