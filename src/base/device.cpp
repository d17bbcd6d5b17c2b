#include "base/device_names.h"

#include <algorithm>
#include <cctype>

#include "base/device_file.h"
#include "base/efficiency.h"
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

namespace {

struct Known {
  std::vector<Device> devices;
  std::vector<std::string> by_driver;  // the name of each
  std::shared_ptr<const Efficiencies> others;
};
const Known& known() {
  static const Known all = [] {
    Known k;
    const auto file = parse_json(embedded::devices_json, "devices.json");  // named: a temporary would not outlive the loop's first line
    auto others = file.at("others");                                       // a device without a name
    others.update({{"name", "others"}, {"units", 1}, {"memory_mib", 1}});
    k.others = device_from_json(others).efficiencies;
    for (const auto& j : file.at("devices")) {
      k.devices.push_back(device_from_json(j));
      k.by_driver.push_back(j.value("reported", k.devices.back().name));
    }
    return k;
  }();
  return all;
}

}  // namespace

const std::vector<Device>& known_devices() { return known().devices; }
const Efficiencies& efficiencies_of_others() { return *known().others; }

namespace {

// "NVIDIA GeForce RTX 4090", "rtx-4090" and "4090" are one name: case, marks and the maker's words are left out.
std::string plain(std::string_view typed) {
  std::string name;
  for (const char c : typed)
    if (std::isalnum(static_cast<unsigned char>(c))) name += char(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view word : {"nvidia", "amd", "instinct", "geforce", "tesla", "rtx"})
    if (name.starts_with(word)) name.erase(0, word.size());
  if (name.ends_with("gb")) name.erase(name.size() - 2);
  return name;
}

}  // namespace

const Device* known_device(std::string_view typed) {
  const std::string wanted = plain(typed);
  if (wanted.empty()) return nullptr;
  const Known& all = known();
  for (std::size_t i = 0; i < all.devices.size(); ++i) {
    const Device& d = all.devices[i];
    if (wanted == plain(d.key) || wanted == plain(d.name) || wanted == plain(all.by_driver[i]) ||
        wanted == plain(d.key) + std::to_string(d.memory_bytes >> 30))
      return &d;
  }
  return nullptr;
}

const Device* known_as(std::string_view driver_says) {
  const Known& all = known();
  for (std::size_t i = 0; i < all.devices.size(); ++i)
    if (driver_says == all.by_driver[i] || driver_says == all.devices[i].name) return &all.devices[i];
  return nullptr;
}

std::string name_by_driver(const Device& d) {
  const Known& all = known();
  for (std::size_t i = 0; i < all.devices.size(); ++i)
    if (d.name == all.devices[i].name) return all.by_driver[i];
  return d.name;
}

namespace {

// As known_device reads names: 4900 is near rtx4090.
std::string nearest_to(const std::string& wanted) {
  std::vector<std::string> names;
  for (const Device& d : known_devices()) names.push_back(plain(d.key));
  const auto at = std::find(names.begin(), names.end(), closest(plain(wanted), names)) - names.begin();
  return at == std::ptrdiff_t(names.size()) ? "" : fmt::format("; did you mean '{}'?", known_devices()[std::size_t(at)].key);
}

// "8xh100" and "h100x8" name a card and how many: "; 8 of them are --device h100 --gpus 8". Else empty.
std::string several_in_words(const std::string& wanted) {
  const auto is_number = [](std::string_view s) {
    return !s.empty() && std::ranges::all_of(s, [](unsigned char c) { return std::isdigit(c); });
  };
  const std::string name = plain(wanted);
  const auto first = name.find('x'), last = name.rfind('x');
  if (first == std::string::npos) return "";
  for (const auto& [count, card] :
       {std::pair{name.substr(0, first), name.substr(first + 1)}, {name.substr(last + 1), name.substr(0, last)}})
    if (const Device* d = is_number(count) ? known_device(card) : nullptr)
      return fmt::format("; {} of them are --device {} --gpus {}", count, d->key, count);
  return "";
}

}  // namespace

Device device_described(std::string_view name_or_file) {
  std::string wanted(name_or_file);
  if (wanted.find('/') == std::string::npos && !wanted.ends_with(".json"))
    if (const Device* d = known_device(wanted)) return *d;
  std::vector<std::string> keys;
  for (const Device& d : known_devices()) keys.push_back(d.key);
  const std::string why = why_no_file(wanted);
  if (const std::string several = several_in_words(wanted); !why.empty())
    throw Error(Code::bad_argument, fmt::format("device: {}; name one of {}, or a JSON file{}", why, joined(keys),
                                                several.empty() ? nearest_to(wanted) : several));
  const auto described = parse_json(read_file(wanted, "device", most_json_bytes), fmt::format("device: '{}'", wanted));
  try {
    return device_from_json(described);
  } catch (const Error& e) {
    throw Error(e.at,
                fmt::format("device: '{}': {}; it needs at least {{\"name\": …, \"units\": …, \"memory_mib\": …}}", wanted, e.what()));
  }
}

}  // namespace headroom
