// The number of blocks of a launch, from a 64-bit count; an error beyond the hardware's limit.
#pragma once
#include <cstdint>

#include "base/error.h"

namespace headroom {

inline dim3 grid_of(std::int64_t blocks) {
  check(blocks < (1ll << 31), Code::unsupported, "a launch of {} blocks is past 2^31; make the tensor smaller", blocks);
  return dim3(unsigned(blocks));
}

}  // namespace headroom
