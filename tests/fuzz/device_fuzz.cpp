// A file that should describe a device: it does, and what is written of it is read again; or one line says what it lacks.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/device_file.h"
#include "base/error.h"

namespace {
headroom::Device described(int file, const std::uint8_t* data, std::size_t size) {
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != ssize_t(size)) std::abort();
  return headroom::device_described(path);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = memfd_create("device", 0);
  std::string written;
  try {
    const headroom::Device d = described(file, data, size);
    const auto& c = d.ceilings;
    for (const double x : {c.copy_bytes_per_s, c.fp32_flops, c.tf32_flops, c.bf16_flops, c.fp16_flops, c.fp8_flops})
      if (!(x >= 0)) std::abort();
    if (d.efficiencies)
      for (const headroom::Efficiency& e : d.efficiencies->by_precision)
        if (!(e.product >= 0 && e.within >= 1)) std::abort();
    written = headroom::device_file_text(d);
  } catch (const headroom::Error& e) {
    if (e.at.code != headroom::Code::bad_argument || !*e.what()) std::abort();
  }
  if (written.empty()) return 0;
  const headroom::Device again = described(file, reinterpret_cast<const std::uint8_t*>(written.data()), written.size());
  if (headroom::device_file_text(again) != written) std::abort();
  return 0;
}
