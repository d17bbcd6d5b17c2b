#include "base/device.h"

#include "base/device_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/host_memory.h"
#include "base/json.h"
#include "base/text.h"
#include "base/threads.h"

namespace headroom {

namespace embedded {
extern const std::string_view devices_json;
}

Device cpu_device() {
  Device d;
  d.name = said_in("/proc/cpuinfo", "model name");
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
    const auto file = parse_json(embedded::devices_json, "devices.json");  // named: a temporary would not outlive the loop's first line
    for (const auto& j : file.at("devices")) all.push_back(device_from_json(j));
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
  const std::string why = why_no_file(wanted);
  check(why.empty(), Code::bad_argument, "device: {}; name one of {}, or a JSON file{}", why, joined(keys), did_you_mean(wanted, keys));
  const auto described = parse_json(read_file(wanted, "device", most_json_bytes), fmt::format("device: '{}'", wanted));
  try {
    return device_from_json(described);
  } catch (const Error& e) {
    throw Error(e.at,
                fmt::format("device: '{}': {}; it needs at least {{\"name\": …, \"units\": …, \"memory_mib\": …}}", wanted, e.what()));
  }
}

}  // namespace headroom
