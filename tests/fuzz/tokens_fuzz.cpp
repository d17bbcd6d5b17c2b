// A file of tokens. The first byte says which format it is read as and how large the vocabulary is: every token that comes out lies
// below it, or one line says where the file is wrong.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "engine/data/data.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headroom;
  if (size == 0) return 0;
  static const int file = memfd_create("tokens", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data + 1, size - 1, 0) != ssize_t(size - 1)) std::abort();
  const auto format = engine::TokenFormat(data[0] % 3);
  const std::int64_t vocab = 1 + data[0] * 17;
  try {
    const engine::Data tokens(path, format, vocab, 0.1);
    const std::size_t width = format == engine::TokenFormat::text ? 1 : format == engine::TokenFormat::u16 ? 2 : 4;
    if (tokens.size() != (size - 1) / width) std::abort();
    const double entropy = tokens.unigram_entropy();
    if (!(entropy >= -1e-9 && entropy < 20)) std::abort();
    engine::Recipe r;
    r.batch = 2, r.len = 3;
    if (tokens.validation_batches(r) < 0) std::abort();
  } catch (const Error& e) {
    if (!*e.what()) std::abort();
  }
  return 0;
}
