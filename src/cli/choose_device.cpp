#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"

namespace headroom::cli {

Device chosen_device(const Common& common) {
  const std::string& wanted = common.device;
  if (wanted.empty() || wanted == "cpu") return cpu_device();
  const bool cuda = wanted == "cuda" || wanted.starts_with("cuda:");
  check(cuda, Code::bad_argument, "--device: there is no '{}'; choose from cpu, cuda, cuda:N{}", wanted,
        did_you_mean(wanted, {"cpu", "cuda"}));
  if (wanted.size() > 4) parse_integer(std::string_view(wanted).substr(5), "--device cuda:N");
  throw Error(Code::unsupported, fmt::format("--device: '{}' cannot be had, commands run on the CPU in this version; try --device cpu "
                                             "(CUDA kernels are reached through the C interface)",
                                             wanted));
}

}  // namespace headroom::cli
