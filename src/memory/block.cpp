#include "memory/block.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/fault.h"
#include "base/text.h"

namespace headroom {

Block::Block(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  fault::point();
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    const char* why = std::strerror(errno);
    throw Error(Code::out_of_memory, fmt::format("the system refused {}: {}", bytes_exactly(bytes), why));
  }
  madvise(at, bytes, MADV_HUGEPAGE);  // a hint: fewer TLB misses where the system follows it
  data_ = at;
}

Block::~Block() {
  if (data_) munmap(data_, bytes_);
}

}  // namespace headroom
