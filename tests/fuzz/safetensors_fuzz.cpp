// A file of tensors: what its header says lies within the file and is as long as it says, or one line says what is wrong; reading
// changes nothing unless all of it is right.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "engine/files/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headroom;
  static const int file = memfd_create("safetensors", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ftruncate(file, 0) != 0 || (size > 0 && pwrite(file, data, size, 0) != ssize_t(size))) std::abort();
  float values[4] = {1, 2, 3, 4};
  try {
    for (const auto& [name, t] : engine::read_safetensors_header(path).tensors)
      if (t.at < 8 || t.at > size || t.bytes > size - t.at) std::abort();
    engine::read_safetensors(path, {{"w", Tensor(values, DType::f32, {2, 2})}});
  } catch (const Error& e) {
    const auto has = [](std::string_view where) { return where.find("[json.") != std::string_view::npos; };
    if ((has(e.what()) && !has({reinterpret_cast<const char*>(data), size})) || !*e.what()) std::abort();
    for (int i = 0; i < 4; ++i)
      if (values[i] != float(i + 1)) std::abort();
  }
  return 0;
}
