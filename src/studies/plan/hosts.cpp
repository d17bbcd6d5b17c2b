#include "studies/plan/hosts.h"

#include <algorithm>

#include "base/text.h"
#include "gpu/architecture.h"

namespace headroom::studies {

namespace {

double network_of(const Device& d, std::optional<LinkRate> link) {
  return link ? link->bytes_per_s : architecture_of(d.sm).network_bytes_per_s;
}

}  // namespace

Device among_hosts(Device d, int gpus, int per_host, std::optional<LinkRate> link) {
  if (gpus <= per_host || d.kind == DeviceKind::cpu) return d;
  double& own = d.ceilings.link_bytes_per_s;
  if (own > 0) own = std::min(own, network_of(d, link));
  return d;
}

std::string hosts_in_words(const Device& d, int gpus, int per_host, std::optional<LinkRate> link) {
  if (gpus <= per_host && link)
    return fmt::format("--link is not used: {} in one host (--per-host {}).",
                       gpus == 1 ? "the GPU is" : fmt::format("the {} GPUs are", gpus), per_host);
  if (gpus <= per_host || d.kind == DeviceKind::cpu) return "";
  return fmt::format(
      "{} GPUs are {} hosts of {}: a collective of all of them is as slow as what crosses hosts, {:g} GB/s of each GPU, one way ({}).",
      gpus, (gpus + per_host - 1) / per_host, per_host, network_of(d, link) / 1e9,
      link ? "--link" : fmt::format("taken for {}; --link names another, --per-host other hosts", d.name));
}

}  // namespace headroom::studies
