#include "base/device.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/file.h"
#include "base/host_link.h"
#include "base/json.h"
#include "base/text.h"
#include "base/threads.h"

namespace headroom {

namespace embedded {
extern const std::string_view devices_json;
}

namespace {

using Json = nlohmann::json;

double positive(const Json& j, const char* key, double scale) {
  if (!j.contains(key)) return 0;
  const double x = j[key].is_number() ? j[key].get<double>() : -1;
  check(x >= 0 && x <= 1e9, Code::bad_argument, "{} is {}, it must be a number from 0 (not known) to 1e9", key, j[key].dump());
  return x * scale;
}

int counted(const Json& j, const char* key) {
  if (!j.contains(key)) return 0;
  const auto x = j[key].is_number_integer() ? j[key].get<std::int64_t>() : -1;
  check(x >= 0 && x <= 1'000'000, Code::bad_argument, "{} is {}, it must be a whole number from 0 (not known) to 1000000", key,
        j[key].dump());
  return int(x);
}

std::string word(const Json& j, const char* key, const char* otherwise) {
  if (!j.contains(key)) return otherwise;
  check(j[key].is_string(), Code::bad_argument, "{} is {}, it must be a text in quotes", key, j[key].dump());
  return j[key].get<std::string>();
}

struct HostLinks {  // bytes/s by a device's name
  std::mutex mutex;
  std::map<std::string, double> of;
};
HostLinks& host_links() {
  static HostLinks links;
  return links;
}

// An Error says which key is wrong, and not of whom.
Device device_of(const Json& j) {
  check(j.is_object(), Code::bad_argument, "it holds no object");
  static const std::vector<std::string> known{"kind",        "key",        "name",        "sm",          "units",
                                              "memory_mib",  "copy_tb_s",  "fp32_tflops", "tf32_tflops", "bf16_tflops",
                                              "fp16_tflops", "fp8_tflops", "link_gb_s",   "host_gb_s",   "source"};
  for (const auto& [key, value] : j.items())
    check(std::find(known.begin(), known.end(), key) != known.end(), Code::bad_argument, "there is no key '{}'; choose from {}{}", key,
          joined(known), did_you_mean(key, known));
  Device d;
  const std::string kind = word(j, "kind", "cuda");
  check(kind == "cuda" || kind == "cpu", Code::bad_argument, "kind is '{}'; choose from cuda, cpu", kind);
  d.kind = kind == "cpu" ? DeviceKind::cpu : DeviceKind::cuda;
  d.key = word(j, "key", "");
  d.name = word(j, "name", "");
  check(!d.name.empty(), Code::bad_argument, "its name is missing");
  d.sm = counted(j, "sm");
  d.units = counted(j, "units");
  check(positive(j, "memory_mib", 0x1p20) >= 1, Code::bad_argument, "its memory_mib is missing or 0");
  d.memory_bytes = d.total_bytes = std::uint64_t(positive(j, "memory_mib", 0x1p20));
  check(d.kind == DeviceKind::cpu || d.units >= 1, Code::bad_argument,
        "its units (multiprocessors) are missing or 0; workspaces are as large as there are of them");
  d.ceilings.copy_bytes_per_s = positive(j, "copy_tb_s", 1e12);
  d.ceilings.fp32_flops = positive(j, "fp32_tflops", 1e12);
  d.ceilings.tf32_flops = positive(j, "tf32_tflops", 1e12);
  d.ceilings.bf16_flops = positive(j, "bf16_tflops", 1e12);
  d.ceilings.fp16_flops = positive(j, "fp16_tflops", 1e12);
  d.ceilings.fp8_flops = positive(j, "fp8_tflops", 1e12);
  d.ceilings.link_bytes_per_s = positive(j, "link_gb_s", 1e9);
  d.ceilings.source = word(j, "source", "described");
  if (const double host = positive(j, "host_gb_s", 1e9); host > 0) {
    HostLinks& links = host_links();
    const std::lock_guard lock(links.mutex);
    links.of[d.name] = host;
  }
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
  d.memory_bytes = memory.available;
  d.total_bytes = memory.total;
  return d;
}

const std::vector<Device>& known_devices() {
  static const std::vector<Device> devices = [] {
    std::vector<Device> all;
    const Json file = parse_json(embedded::devices_json, "devices.json");  // named: a temporary would not outlive the loop's first line
    for (const Json& j : file.at("devices")) all.push_back(device_of(j));
    return all;
  }();
  return devices;
}

double host_bytes_per_s(const Device& d) {
  (void)known_devices();
  HostLinks& links = host_links();
  const std::lock_guard lock(links.mutex);
  const auto at = links.of.find(d.name);
  return d.kind == DeviceKind::cpu || at == links.of.end() ? 0 : at->second;
}

void set_host_bytes_per_s(const Device& d, double measured) {
  (void)known_devices();  // which would write over it
  HostLinks& links = host_links();
  const std::lock_guard lock(links.mutex);
  links.of[d.name] = measured;
}

std::uint64_t host_memory_for(const Device& d, int programs) {
  const bool present = d.kind == DeviceKind::cpu || !d.bus.empty();
  return present ? host_memory().available / 5 * 4 / std::uint64_t(std::max(1, programs)) : std::numeric_limits<std::uint64_t>::max();
}

Device device_described(std::string_view name_or_file) {
  std::string wanted(name_or_file);
  std::vector<std::string> keys;
  for (const Device& d : known_devices()) {
    if (wanted == d.key || wanted == d.name) return d;
    keys.push_back(d.key);
  }
  const std::string why = why_no_file(wanted);
  check(why.empty(), Code::bad_argument, "device: {}; name one of {}, or a JSON file{}", why, joined(keys), did_you_mean(wanted, keys));
  const Json described = parse_json(read_file(wanted, "device", most_json_bytes), fmt::format("device: '{}'", wanted));
  try {
    return device_of(described);
  } catch (const Error& e) {
    throw Error(e.at, fmt::format("device: '{}': {}; it needs at least {{\"name\": …, \"units\": …, \"memory_mib\": …}}", wanted, e.what()));
  }
}

}  // namespace headroom
