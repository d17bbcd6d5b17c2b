// OpenBLAS as our own threads call it: it starts none itself (docs/decisions/cpu-matmul.md).
#pragma once
#include <cblas.h>

#include <atomic>
#include <cstddef>

#include "base/address_space.h"
#include "base/error.h"
#include "base/text.h"

namespace headroom {

// Call it before a product on so many threads. OpenBLAS maps a buffer for each thread that calls it, and where the system refuses that (ulimit -v)
// it asks again without end. So the room is asked for here, once.
inline void use_openblas(int threads) {
  static std::atomic<int> have_room = 0;
  if (threads <= have_room) return;
  openblas_set_num_threads(1);
  const std::size_t bytes = std::size_t(threads) * openblas_bytes_of_a_thread;
  check(has_room_for_addresses(bytes), Code::out_of_memory,
        "matrix products need {} of address space for {}, and the system refuses it; raise the limit of ulimit -v, or take fewer --threads",
        bytes_in_words(double(bytes)), counted(std::uint64_t(threads), "thread"));
  have_room = threads;
}

}  // namespace headroom
