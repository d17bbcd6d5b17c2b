#include <algorithm>

#include "base/device_names.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "gpu/device.h"

namespace headroom::cli {

namespace {

Device cuda_named(std::int64_t index, const Common& common) {
  try {
    Device d = cuda_device(int(index));
    d.memory_bytes = free_memory_bytes(d);
    return d;
  } catch (const Error& e) {
    const char* const instead = common.machine == Machine::present
                                    ? "try --device cpu"
                                    : "a GPU that is not here is named by its model, as --device h200 (headroom device --known lists them)";
    throw Error(e.at, fmt::format("--device: {}; {}", e.what(), instead));
  }
}

}  // namespace

Device chosen_device(const Common& common) {
  const std::string& wanted = common.device;
  if (wanted == "cpu" || (wanted.empty() && !cuda_by_default())) return cpu_device();
  if (wanted.empty() || wanted == "cuda") return cuda_named(0, common);  // CUDA counts the fastest first
  check(!known_device(wanted), Code::bad_argument,
        "--device: there is no {} in this machine, and this command measures; choose from cpu, cuda, cuda:N. A forecast needs no card: "
        "headroom plan --device {} (a step), headroom memory attention --device {} (attention)",
        wanted, wanted, wanted);
  check(wanted.starts_with("cuda:"), Code::bad_argument, "--device: there is no '{}'; choose from cpu, cuda, cuda:N{}", wanted,
        did_you_mean(wanted == "gpu" ? "cuda" : wanted, {"cpu", "cuda"}));
  return cuda_named(parse_integer(std::string_view(wanted).substr(5), "--device cuda:N", {0, 1023}), common);
}

Device chosen_cpu(const Common& common, const char* who) {
  check(common.device.empty() || common.device == "cpu", Code::unsupported,
        "--device: '{}' does not run {} in this version; try --device cpu", common.device, who);
  return cpu_device();
}

}  // namespace headroom::cli
