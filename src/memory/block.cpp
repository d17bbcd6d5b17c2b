#include "memory/block.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"

namespace headroom {

void* host_bytes(std::size_t bytes) {
  fault::point();
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    const char* why = std::strerror(errno);
    throw Error(Code::out_of_memory, fmt::format("the system refused {}: {}", bytes_exactly(bytes), why));
  }
  madvise(at, bytes, MADV_HUGEPAGE);  // a hint: fewer TLB misses where the system follows it
  return at;
}

void give_back_host_bytes(void* data, std::size_t bytes) { munmap(data, bytes); }

}  // namespace headroom
