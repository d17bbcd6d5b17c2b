// OpenBLAS as our own threads call it: it starts none itself (docs/decisions/cpu-matmul.md).
#pragma once
#include <cblas.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>

#include "base/error.h"
#include "base/text.h"

namespace headroom {

// Call it before a product on so many threads. OpenBLAS maps a buffer for each thread that calls it, and where the system refuses that (ulimit -v)
// it asks again without end. So the room is asked for here, once.
inline void use_openblas(int threads) {
  constexpr std::size_t bytes_of_a_thread = 129 << 20;  // its buffer of 128 MiB, and what is around it
  static std::atomic<int> have_room = 0;
  if (threads <= have_room) return;
  openblas_set_num_threads(1);
  const std::size_t bytes = std::size_t(threads) * bytes_of_a_thread;
  void* const room = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(room != MAP_FAILED, Code::out_of_memory,
        "matrix products need {} of address space for {}, and the system refuses it; raise the limit of ulimit -v, or take fewer --threads",
        bytes_in_words(double(bytes)), counted(std::uint64_t(threads), "thread"));
  munmap(room, bytes);
  have_room = threads;
}

}  // namespace headroom
