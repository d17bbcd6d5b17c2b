#include "base/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace headroom {

namespace {

// "memory.max" says "max" where there is no limit.
std::uint64_t number_in(const char* file) {
  std::ifstream in(file);
  std::uint64_t n = 0;
  return in >> n ? n : 0;
}

std::uint64_t meminfo_bytes(std::string_view line) {
  const std::string text = said_in("/proc/meminfo", line);
  return text.empty() ? 0 : std::stoull(text) * 1024;
}

}  // namespace

std::string said_in(const char* file, std::string_view head) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(head)) continue;
    const auto colon = line.find(':');
    const auto from = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    return from == std::string::npos ? "" : line.substr(from);
  }
  return "";
}

HostMemory host_memory() {
  HostMemory m{meminfo_bytes("MemTotal"), meminfo_bytes("MemAvailable")};
  const std::uint64_t limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  if (limit > 0) m.total = std::min(m.total, limit), m.available = std::min(m.available, limit > used ? limit - used : 0);
  return m;
}

std::uint64_t host_memory_for(const Device& d, int programs) {
  const bool present = d.kind == DeviceKind::cpu || !d.bus.empty();
  return present ? host_memory().available / 5 * 4 / std::uint64_t(std::max(1, programs)) : std::numeric_limits<std::uint64_t>::max();
}

}  // namespace headroom
