// Pinned memory of the host is mapped on every card where its process has a context, and each mapping takes memory of that card: 8 bytes for each
// 4 KiB, in pieces of 2 MiB, of which a context has about a half to spare. An H200 gave 0, 2, 8 and 24 MiB for 256 MiB, 1, 4 and 12 GiB, whether
// cudaHostAlloc took them or cudaHostRegister pinned them.
#pragma once
#include <cstdint>

namespace headroom {

// Bytes of one card that map what one process pins, or what each of several processes with a context there pins.
constexpr std::uint64_t bytes_of_pinned_pages(std::uint64_t pinned, int processes = 1) {
  constexpr std::uint64_t piece = 2 << 20, page = 4096, entry = 8;
  return std::uint64_t(processes) * ((pinned / page * entry + piece / 2) / piece * piece);
}

}  // namespace headroom
