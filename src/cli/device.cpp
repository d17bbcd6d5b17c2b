// headroom device — what this machine is.
#include "cli/command.h"
#include "cli/options.h"

namespace headroom::cli {

Run device(CLI::App& app, Common& common) {
  app.footer("Examples:\n  headroom device\n  headroom device --format json");
  return [&common] {
    const Device d = chosen_device(common);
    Record r{"", d.name, {}};
    r.add("kind", std::string(d.kind == DeviceKind::cpu ? "cpu" : "cuda"));
    r.add("name", d.name);
    r.add("units", std::int64_t(d.units));
    r.add("memory_bytes", std::int64_t(d.memory_bytes), Unit::bytes);
    return deliver(r, common);
  };
}

}  // namespace headroom::cli
