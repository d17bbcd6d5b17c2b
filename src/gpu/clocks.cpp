#include "gpu/clocks.h"

#include <dlfcn.h>

namespace headroom {

namespace {

using Handle = void*;

struct Nvml {  // the few calls that are used, by their names in the library; its numbers are fixed by its ABI
  int (*init)();
  int (*handle)(const char*, Handle*);
  int (*clock)(Handle, int, unsigned*);
  int (*most_clock)(Handle, int, unsigned*);
  int (*temperature)(Handle, int, unsigned*);
  int (*power)(Handle, unsigned*);
  int (*most_power)(Handle, unsigned*);
  int (*reasons)(Handle, unsigned long long*);
  int (*version)(char*, unsigned);
  bool there = false;

  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    bool all = true;
    const auto find = [&](const char* name, auto& into) {
      into = reinterpret_cast<std::remove_reference_t<decltype(into)>>(dlsym(library, name));
      all = all && into;
    };
    find("nvmlInit_v2", init);
    find("nvmlDeviceGetHandleByPciBusId_v2", handle);
    find("nvmlDeviceGetClockInfo", clock);
    find("nvmlDeviceGetMaxClockInfo", most_clock);
    find("nvmlDeviceGetTemperature", temperature);
    find("nvmlDeviceGetPowerUsage", power);
    find("nvmlDeviceGetEnforcedPowerLimit", most_power);
    find("nvmlDeviceGetCurrentClocksThrottleReasons", reasons);
    find("nvmlSystemGetDriverVersion", version);
    there = all && init() == 0;
  }
};

std::vector<std::string> in_words(unsigned long long reasons) {
  constexpr std::pair<unsigned, const char*> names[] = {{0x002, "clocks set by hand"}, {0x004, "power limit"},
                                                        {0x008, "hardware slowdown"},  {0x020, "heat"},
                                                        {0x040, "heat (hardware)"},    {0x080, "power brake (hardware)"}};
  std::vector<std::string> words;
  for (const auto& [bit, word] : names)
    if (reasons & bit) words.emplace_back(word);
  return words;
}

}  // namespace

std::optional<Clocks> clocks_of(const Device& d) {
  static const Nvml nvml;
  Handle h = nullptr;
  if (!nvml.there || d.bus.empty() || nvml.handle(d.bus.c_str(), &h) != 0) return {};
  constexpr int sm = 1, on_the_die = 0;
  unsigned now = 0, most = 0, celsius = 0, milliwatts = 0, most_milliwatts = 0;
  unsigned long long reasons = 0;
  char version[96] = "";
  if (nvml.clock(h, sm, &now) != 0 || nvml.most_clock(h, sm, &most) != 0) return {};
  nvml.temperature(h, on_the_die, &celsius);
  nvml.power(h, &milliwatts);
  nvml.most_power(h, &most_milliwatts);  // 0 where not told
  nvml.reasons(h, &reasons);
  nvml.version(version, sizeof version);
  return Clocks{int(now), int(most), int(celsius), milliwatts / 1e3, most_milliwatts / 1e3, version, in_words(reasons)};
}

}  // namespace headroom
