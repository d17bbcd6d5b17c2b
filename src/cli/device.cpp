// headroom device — what this machine is, and how fast it copies and multiplies.
#include "cli/options.h"
#include "cli/outcome.h"
#include "studies/device/study.h"

namespace headroom::cli {

Run device(CLI::App& app, Common& common) {
  struct Asked {
    bool skip = false, known = false;
  };
  auto asked = std::make_shared<Asked>();
  add_flag(app, "--no-measure", asked->skip, "Only say what is here");
  add_flag(app, "--known", asked->known, "List the machines that are known by name");
  app.footer("Examples:\n  headroom device\n  headroom device --known\n  headroom device --no-measure --format json");
  return [asked, &common] {
    if (asked->known) return deliver(studies::known_devices_record(), common);
    const Device d = chosen_device(common);
    if (asked->skip) return deliver(studies::device_record(d), common);
    return with_host("device", common, false, [&](const studies::Host& host) { return device_study(d, host); });
  };
}

}  // namespace headroom::cli
