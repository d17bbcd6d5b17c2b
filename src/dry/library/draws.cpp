// Weights of a model on the CPU that nothing reads: their random numbers are passed over, and their pages stay untouched.
#include "dry/draws.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "dry/doors.h"

extern "C" {
int headroom_dry_skip_draws(void* state, size_t bytes, uint64_t words) {
  auto* const generator = static_cast<headroom::dry::Generator*>(state);
  if (bytes < sizeof *generator || !generator->is_sound()) return 0;
  generator->skip(words);
  return 1;
}
void headroom_dry_untouched(void* memory, size_t bytes) {
  const std::uintptr_t page = sysconf(_SC_PAGESIZE), begin = std::uintptr_t(memory), end = begin + bytes;
  const std::uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  char* const at = static_cast<char*>(memory);
  if (first >= last || madvise(at + (first - begin), last - first, MADV_DONTNEED) != 0) {
    std::memset(at, 0, bytes);
    return;
  }
  std::memset(at, 0, first - begin);
  std::memset(at + (last - begin), 0, end - last);
}
}
