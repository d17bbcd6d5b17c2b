// The room for addresses that this process has left (ulimit -v), and what OpenBLAS takes of it.
#pragma once
#include <sys/mman.h>

#include <cstddef>

namespace headroom {

constexpr std::size_t openblas_bytes_of_a_thread = 129 << 20;  // a buffer of 128 MiB, and what is around it

inline bool has_room_for_addresses(std::size_t bytes) {
  void* const room = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return false;
  munmap(room, bytes);
  return true;
}

}  // namespace headroom
