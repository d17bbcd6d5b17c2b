// A file that should describe a device: it does, or one line says what it lacks.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/device.h"
#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = memfd_create("device", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != ssize_t(size)) std::abort();
  try {
    const headroom::Device d = headroom::device_described(path);
    const auto& c = d.ceilings;
    for (const double x : {c.copy_bytes_per_s, c.fp32_flops, c.tf32_flops, c.bf16_flops, c.fp16_flops, c.fp8_flops})
      if (!(x >= 0)) std::abort();
  } catch (const headroom::Error& e) {
    if (e.at.code != headroom::Code::bad_argument || !*e.what()) std::abort();
  }
  return 0;
}
