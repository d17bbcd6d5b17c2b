#include "base/device.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"

namespace headroom {

namespace embedded {
extern const std::string_view devices_json;
}

namespace {

using Json = nlohmann::json;

double positive(const Json& j, const char* key, double scale) {
  const double x = j.value(key, 0.0);
  check(x >= 0 && x < 1e9, Code::bad_argument, "device: {} is {}, it must be positive", key, x);
  return x * scale;
}

Device device_of(const Json& j) {
  Device d;
  d.kind = j.value("kind", "cuda") == "cpu" ? DeviceKind::cpu : DeviceKind::cuda;
  d.key = j.value("key", "");
  d.name = j.at("name").get<std::string>();
  d.sm = j.value("sm", 0);
  d.units = j.value("units", 0);
  d.memory_bytes = d.total_bytes = std::uint64_t(positive(j, "memory_mib", 0x1p20));
  d.ceilings.copy_bytes_per_s = positive(j, "copy_tb_s", 1e12);
  d.ceilings.fp32_flops = positive(j, "fp32_tflops", 1e12);
  d.ceilings.tf32_flops = positive(j, "tf32_tflops", 1e12);
  d.ceilings.bf16_flops = positive(j, "bf16_tflops", 1e12);
  d.ceilings.fp16_flops = positive(j, "fp16_tflops", 1e12);
  d.ceilings.fp8_flops = positive(j, "fp8_tflops", 1e12);
  d.ceilings.link_bytes_per_s = positive(j, "link_gb_s", 1e9);
  d.ceilings.source = j.value("source", "described");
  return d;
}

// "memory.max" says "max" where there is no limit.
std::uint64_t number_in(const char* file) {
  std::ifstream in(file);
  std::uint64_t n = 0;
  return in >> n ? n : 0;
}

std::string after_colon(const std::string& line) {
  const auto at = line.find(':');
  const auto from = at == std::string::npos ? at : line.find_first_not_of(" \t", at + 1);
  return from == std::string::npos ? "" : line.substr(from);
}

std::string line_of(const char* file, std::string_view head) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(head)) return after_colon(line);
  return "";
}

std::uint64_t meminfo_bytes(std::string_view line) {
  const std::string text = line_of("/proc/meminfo", line);
  return text.empty() ? 0 : std::stoull(text) * 1024;
}

struct HostMemory {
  std::uint64_t total, available;
};

HostMemory host_memory() {  // a control group may give this program less than the machine has
  HostMemory m{meminfo_bytes("MemTotal"), meminfo_bytes("MemAvailable")};
  const std::uint64_t limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  if (limit > 0) m.total = std::min(m.total, limit), m.available = std::min(m.available, limit > used ? limit - used : 0);
  return m;
}

}  // namespace

Device cpu_device() {
  Device d;
  d.name = line_of("/proc/cpuinfo", "model name");
  if (d.name.empty()) d.name = "CPU";
  d.units = available_cores();
  const HostMemory memory = host_memory();
  d.memory_bytes = memory.available, d.total_bytes = memory.total;
  return d;
}

const std::vector<Device>& known_devices() {
  static const std::vector<Device> devices = [] {
    std::vector<Device> all;
    const Json file = Json::parse(embedded::devices_json);  // named: a temporary would not outlive the loop's first line
    for (const Json& j : file.at("devices")) all.push_back(device_of(j));
    return all;
  }();
  return devices;
}

Device device_described(std::string_view name_or_file) {
  std::string wanted(name_or_file);
  std::vector<std::string> keys;
  for (const Device& d : known_devices()) {
    if (wanted == d.key || wanted == d.name) return d;
    keys.push_back(d.key);
  }
  std::error_code ignored;
  check(std::filesystem::is_regular_file(wanted, ignored), Code::bad_argument, "device: there is no '{}'; name one of {}, or a JSON file{}",
        wanted, joined(keys), did_you_mean(wanted, keys));
  std::ifstream in(wanted);
  std::stringstream text;
  text << in.rdbuf();
  try {
    return device_of(Json::parse(text.str()));
  } catch (const Json::exception& e) {
    throw Error(
        Code::bad_argument,
        fmt::format("device: '{}' does not describe one; it needs at least {{\"name\": …, \"memory_mib\": …}} ({})", wanted, e.what()));
  }
}

}  // namespace headroom
