// headroom device — what this machine is, how fast it copies and multiplies, and how near to that its steps come.
#include "base/device_file.h"
#include "base/file.h"
#include "cli/model_options.h"
#include "cli/outcome.h"
#include "studies/device/study.h"

namespace headroom::cli {

namespace {

struct Asked {
  studies::DeviceAsked study;
  bool skip = false, known = false;
  std::string save;
};

void check_asked(const Asked& a) {
  const bool measures = !a.skip && !a.known;
  check(measures || !a.study.efficiencies, Code::bad_argument, "--efficiencies measures; leave {} out",
        a.known ? "--known" : "--no-measure");
  check(a.study.efficiencies || a.study.precisions.empty(), Code::bad_argument,
        "--precision is of the steps of --efficiencies; give that too");
  check(!a.known || a.save.empty(), Code::bad_argument, "--save writes this machine; leave --known out");
}

void save(const Device& d, const std::string& file, const Common& common) {
  write_atomically(file, device_file_text(d));
  if (!common.silent)
    say(fmt::format("{} describes this machine: headroom plan --device {} forecasts for it anywhere{}", file, file,
                    d.efficiencies ? "" : "; with --efficiencies, its times too"));
}

}  // namespace

RunCommand device(CLI::App& app, Common& common) {
  auto asked = std::make_shared<Asked>();
  add_flag(app, "--no-measure", asked->skip, "Describe the machine; measure nothing");
  add_flag(app, "--known", asked->known, "List the machines that are known by name");
  add_described(app, asked->study);
  add_file(app, "--save", asked->save, "Write what was measured as a file, which --device reads on any machine");
  app.footer(
      "Examples:\n  headroom device\n  headroom device --efficiencies --save mine.json\n  headroom device --known\n"
      "  headroom device --no-measure --format json");
  return [asked, &common] {
    check_asked(*asked);
    if (asked->known) return deliver(studies::known_devices_record(), common);
    Device d = chosen_device(common);
    const bool saves = !asked->save.empty();
    if (asked->skip) {
      check(!saves || take_kept(d, common), Code::unsupported,
            "--save {}: nothing was measured of {} yet; leave --no-measure out, and give --efficiencies", asked->save, d.name);
      if (saves) save(d, asked->save, common);
      return deliver(studies::device_record(d), common);
    }
    const int code = with_host("device", common, false, [&](const studies::Host& host) { return device_study(d, asked->study, host); });
    if (code != yes || !saves) return code;
    take_kept(d, common);
    save(d, asked->save, common);
    return code;
  };
}

}  // namespace headroom::cli
